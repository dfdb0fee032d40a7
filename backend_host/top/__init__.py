"""`fairgv-host top`: the vGPUs and what each gets, live, in a terminal.

`figures` makes of two statuses what is shown, `drawing` lines of that, `app` the view that Textual runs, `command` the command. The view alone
imports Textual, which takes as long as all the rest of a command's start.
"""
