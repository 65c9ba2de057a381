#!/usr/bin/python3
"""A worker that sends the messages of the table sendsms.

Start as many as you like, on as many machines as you like: tokenlock gives
each message to one live worker, and what a dead one had to the others.  A
worker that dies, or stands still for longer than its ttl, after sending a
message and before the database knows, is the one case in which that goes out
again: no database can see that it went.

PGHOST, PGDATABASE etc. say where the database is.
"""

import argparse
import json
import os
import socket
import time

import psycopg2


def clock():
    """Seconds that go on in suspend, as they do for the server's leases."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Worker:
    def __init__(self, options):
        self.sid = options.sid
        self.batch = options.batch
        self.ttl = options.ttl
        self.pause = options.pause
        self.spool = open(options.spool, "a", encoding="utf-8")
        self.db = psycopg2.connect("")
        self.db.autocommit = True
        self.cursor = self.db.cursor()
        self.renew_at = 0
        self.report_at = 0

    def query(self, statement, *arguments):
        self.cursor.execute(statement, arguments)
        return self.cursor.fetchall()

    def value(self, statement, *arguments):
        return self.query(statement, *arguments)[0][0]

    def run(self):
        sent = []
        while True:
            messages = self.claim(sent)
            if messages:
                sent = self.send(messages)
            elif self.all_sent():
                break
            else:
                sent = []
                time.sleep(0.1)     # others are at work on the rest
            self.report()
        self.query("SELECT token_put('sms:progress', owner => %s)", self.sid)

    def claim(self, sent):
        """Finish what was sent and get the next batch, in one round trip.

        What a dead worker has left behind comes along with the ready ones.
        """
        self.renew_at = clock() + self.ttl / 2
        return self.query(
            "SELECT sendid, recevies, content"
            " FROM claim_jobs(NULL::sendsms, %s, %s, done => %s::bigint[],"
            " ttl => %s * interval '1 second')",
            self.sid, self.batch, sent, self.ttl)

    def still_mine(self):
        """Keep the claimed messages; false when that came too late."""
        now = clock()
        if now < self.renew_at:
            return True
        self.renew_at = now + self.ttl / 2
        return self.value("SELECT renew_jobs('sendsms', %s)", self.sid)

    def send(self, messages):
        """Send a batch; return the ids that the next claim is to finish."""
        sent = []
        for sendid, number, text in messages:
            if not self.still_mine():
                break
            self.send_one(sendid, number, text)
            sent.append(sendid)
        self.spool.flush()
        os.fsync(self.spool.fileno())
        if len(sent) == len(messages):
            return sent

        # This worker was taken for dead, by its own slowness: others may
        # have what it has not sent.  The next claim tells what is left.
        finished = self.value(
            "SELECT finish_jobs('sendsms', %s, %s::bigint[])", self.sid, sent)
        print(f"{self.sid}: too slow; {finished} of {len(sent)} sent messages"
              " were still mine", flush=True)
        return []

    def send_one(self, sendid, number, text):
        """Where a real worker talks to its gateway."""
        line = {"sendid": sendid, "to": number, "text": text}
        self.spool.write(json.dumps(line, ensure_ascii=False) + "\n")
        time.sleep(self.pause)

    def all_sent(self):
        return self.value(
            "SELECT NOT EXISTS (SELECT FROM sendsms WHERE status <> '1')")

    def report(self):
        """Print how far they all are, unless another worker does that.

        Whoever has the token keeps it by asking again; when it dies, the
        token passes to the next that asks after the ttl.
        """
        reporter = self.value(
            "SELECT token_get('sms:progress', owner => %s, ttl => '1.5 s')",
            self.sid)
        if not reporter or clock() < self.report_at:
            return
        self.report_at = clock() + 0.5
        sent, total = self.query(
            "SELECT count(*) FILTER (WHERE status = '1'), count(*)"
            " FROM sendsms")[0]
        print(f"  {self.sid} reports: {sent:5} of {total} sent", flush=True)


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("spool", help="file that the messages are sent to")
    parser.add_argument("--sid", default=f"{socket.gethostname()}:{os.getpid()}",
                        help="name of this worker, unlike any other's")
    parser.add_argument("--batch", type=int, default=50,
                        help="messages to claim at a time")
    parser.add_argument("--ttl", type=float, default=3,
                        help="seconds after which a silent worker is dead")
    parser.add_argument("--pause", type=float, default=0.005,
                        help="seconds that the gateway takes for a message")
    return parser.parse_args()


if __name__ == "__main__":
    Worker(options()).run()
