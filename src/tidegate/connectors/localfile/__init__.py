"""Files on a local or shared disk."""
