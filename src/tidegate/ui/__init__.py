"""The web UI: pages rendered on the server from the models of the typed API, updated by its events.

No build step and no requests to other hosts; pages can be read without JavaScript.

app             routes
page_renderer   what all pages share: templates, roles, error pages
pages           GET: one function per page
actions         confirmation pages, and the commands that follow them
history         history of a job
drawing         graph and checkpoint timeline as coordinates. Pure
formats         human-readable numbers, times and states. Pure
log_text        human-readable logs. Pure
templates, static
"""
