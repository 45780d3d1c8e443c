"""What `lakepact demo` shows: a shop whose tables never disagree, whatever fails and whatever is killed.

story.py     what happens, step by step
pipeline.py  the shop's tables, declared; rows.py: what it has sold
watcher.py   a reader outside
server.py    a server that is killed and comes back
"""
