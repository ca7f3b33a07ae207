"""From a case to the smallest script that hangs in the same way.

The calls that a case holds become one program a rank (`schedule`), which is played under the rules
of a rehearsal (`playing`) and judged by the same analysis as the case. What can go without another
verdict goes (`shrinking`); what is left is written as a script (`scripting`), and the script is run
once (`trying`) before it is handed out. Nothing here needs torch but that run.
"""
