"""Finding what is out of a history: the terms texts are known by, and the search over them."""
