#!/usr/bin/python3
"""Share thousands of messages out among five workers and kill one of them.

Needs an empty database with tokenlock (script/demo makes one) and a folder
for the spools.  At the end the spools are checked against the table.
"""

import collections
import json
import os
import signal
import subprocess
import sys
import time

import psycopg2
from psycopg2.extras import execute_values

import messages

HERE = os.path.dirname(os.path.abspath(__file__))
SIDS = "abcde"
VICTIM = "c"
TTL = 3
PATIENCE = 60       # seconds; it takes some ten


def say(text):
    print(text, flush=True)


def wait_for(what, condition):
    """Until the condition holds; its value."""
    end = time.monotonic() + PATIENCE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            sys.exit(f"demo: waited in vain for {what}")
        time.sleep(0.02)


def stopped(pid):
    """Has the child stopped itself?  An error when it has ended."""
    changed, status = os.waitpid(pid, os.WUNTRACED | os.WNOHANG)
    if changed and not os.WIFSTOPPED(status):
        sys.exit("demo: the victim ended by itself")
    return changed


class Demo:
    def __init__(self, folder):
        self.folder = folder
        self.processes = {}
        db = psycopg2.connect("")
        db.autocommit = True
        self.cursor = db.cursor()

    def query(self, statement, *arguments):
        self.cursor.execute(statement, arguments)
        return self.cursor.fetchall()

    def spool(self, sid):
        return os.path.join(self.folder, f"spool.{sid}")

    def fill(self):
        with open(os.path.join(HERE, "sendsms.sql"), encoding="utf-8") as file:
            self.cursor.execute(file.read())
        outbox = messages.messages()
        execute_values(self.cursor,
                       "INSERT INTO sendsms (content, recevies) VALUES %s",
                       [(text, number) for text, number, _ in outbox])
        self.cursor.execute("ANALYZE sendsms")

        counts = collections.Counter(language for _, _, language in outbox)
        say(f"{len(outbox)} messages to send: " + ", ".join(
            f"{count} {language}" for language, count in counts.most_common()))
        for wanted in counts:
            text, number = next((text, number)
                                for text, number, language in outbox
                                if language == wanted and len(text) > 30)
            say(f"  {number:15} {' '.join(text.split())[:36]}..")

    def start(self, sid):
        program = "victim.py" if sid == VICTIM else "worker.py"
        self.processes[sid] = subprocess.Popen(
            [sys.executable, os.path.join(HERE, program), "--sid", sid,
             "--ttl", str(TTL), self.spool(sid)])

    def reporter(self):
        holder = self.query("SELECT owner FROM token_holders"
                            " WHERE name = 'sms:progress'")
        return holder[0][0] if holder else None

    def kill_victim(self):
        """Once it has stopped, kill -9; True when it was the reporter."""
        pid = self.processes[VICTIM].pid
        wait_for(f"{VICTIM} to stop", lambda: stopped(pid))
        claimed = self.query("SELECT count(*) FROM sendsms"
                             " WHERE status = '2' AND sid = %s", VICTIM)[0][0]
        was_reporter = self.reporter() == VICTIM
        os.kill(pid, signal.SIGKILL)
        self.processes.pop(VICTIM).wait()
        say(f"  {VICTIM} is killed (SIGKILL) with {claimed} messages claimed"
            " and not sent" + (", and the reporter's token" if was_reporter
                               else ""))
        if claimed == 0:
            sys.exit(f"demo: worker {VICTIM} had nothing in its hands")
        return was_reporter

    def run(self):
        self.fill()
        say(f"Workers {', '.join(SIDS)}; a silent one is dead after {TTL} s")
        self.start(VICTIM)
        wait_for("a reporter", self.reporter)
        for sid in SIDS:
            if sid != VICTIM:
                self.start(sid)
        if self.kill_victim():
            heir = wait_for("another reporter", lambda: self.reporter() not in
                            (None, VICTIM) and self.reporter())
            say(f"  {heir} has the reporter's token now")
        for sid, process in self.processes.items():
            try:
                if process.wait(PATIENCE) != 0:
                    sys.exit(f"demo: worker {sid} failed")
            except subprocess.TimeoutExpired:
                say(f"wrong: {sid} is still at work after {PATIENCE} s")
                break

    def end(self):
        for process in self.processes.values():
            process.kill()

    def check(self):
        """Hold the spools against the table and the log of the claims."""
        table = {row[0]: row[1:] for row in self.query(
            "SELECT sendid, recevies, content, status FROM sendsms")}
        claims = collections.defaultdict(list)      # sendid -> sids, in order
        for sendid, sid in self.query(
                "SELECT sendid, sid FROM claim_log ORDER BY n"):
            claims[sendid].append(sid)
        sent = collections.defaultdict(list)        # sendid -> sids
        wrong = []
        for sid in SIDS:
            with open(self.spool(sid), encoding="utf-8") as spool:
                for message in map(json.loads, spool):
                    sendid = message["sendid"]
                    sent[sendid].append(sid)
                    if table.get(sendid) != (message["to"], message["text"],
                                             "1"):
                        wrong.append(f"{sendid}: not as in the table")
                    if claims[sendid][-1:] != [sid]:
                        wrong.append(f"{sendid}: {sid} did not have it last")

        say("worker  claimed  taken over   sent")
        for sid in SIDS:
            say("{:6} {:8} {:11} {:6}{}".format(
                sid,
                sum(sid in sids for sids in claims.values()),
                sum(sid in sids[1:] for sids in claims.values()),
                sum(sid in sids for sids in sent.values()),
                "   (killed)" if sid == VICTIM else ""))
        if not any(VICTIM in sids[:-1] for sids in claims.values()):
            wrong.append(f"nothing of {VICTIM} was taken over")

        once = sum(len(sids) == 1 for sids in sent.values())
        more = sum(len(sids) > 1 for sids in sent.values())
        never = len(table.keys() - sent.keys())
        for line in wrong[:10]:
            say("wrong: " + line)
        say(f"sms: {once} sent exactly once, {more} twice, {never} never")
        return not (wrong or more or never)


def main():
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} SPOOLFOLDER")
    demo = Demo(sys.argv[1])
    try:
        demo.run()
    finally:
        demo.end()
    sys.exit(0 if demo.check() else 1)


if __name__ == "__main__":
    main()
