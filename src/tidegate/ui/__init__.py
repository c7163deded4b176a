"""The web pages: rendered here from the models of the typed API, patched by its events. No build
step, no request to anybody else; reading needs no script.

app        the routes
frame      what all pages share: templates, who may see them, how errors look
pages      GET: one function for each page
acting     what changes something: a page that says what it keeps and costs, then the wish, then back to the fact
drawing    the graph and the timeline as coordinates. Pure
words      numbers, times and states for people. Pure
templates, static   what they are made of
"""
