#!/usr/bin/python3
"""A worker that sends the messages of the table sendsms through Kannel.

The table is that of ../sms/sendsms.sql.  PGHOST, PGDATABASE etc. say where the
database is, KANNEL_PASSWORD what the gateway's user has for a password.

Start as many as you like.  Each message goes to the gateway once; but when a
worker is killed, or stands still for longer than its ttl, then those of its
batch that it has sent, and not told the database of, are sent again.
"""

import argparse
import http.client
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import psycopg2

# What goes as 7-bit text, up to 160 to an SMS; any other as UCS-2, up to 70.
GSM = set("@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
          "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
          "^{}\\[~]|€")


# Trouble with the database, or with the gateway.
TROUBLE = (psycopg2.OperationalError, psycopg2.InterfaceError, OSError,
           http.client.HTTPException)


class Refused(Exception):
    """The gateway will never send this message."""


def clock():
    """Seconds that go on in suspend, as they do for the server's leases."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Worker:
    def __init__(self, options):
        self.options = options
        self.sid = options.sid
        self.db = None
        self.sent = []          # and the database does not know it yet
        self.mine_until = 0     # unless the lease is renewed
        self.stopping = threading.Event()

    def say(self, text):
        print(f"{self.sid}: {text}", file=sys.stderr, flush=True)

    def query(self, statement, *arguments):
        try:
            if self.db is None:
                self.db = psycopg2.connect(application_name=self.sid)
                self.db.autocommit = True
            with self.db.cursor() as cursor:
                cursor.execute(statement, arguments)
                return cursor.fetchall()
        except (psycopg2.OperationalError, psycopg2.InterfaceError):
            if self.db is not None:
                self.db.close()
            self.db = None
            raise

    def run(self):
        signal.signal(signal.SIGTERM, lambda *_: self.stopping.set())
        while True:
            try:
                if self.stopping.is_set():
                    self.stop()
                    return
                self.send_batch(self.claim())
            except TROUBLE as error:
                if self.stopping.is_set() and clock() > self.mine_until:
                    raise
                self.say(f"trying again: {str(error).strip()}")
                time.sleep(1)

    def claim(self):
        """Tell what was sent and get the next messages, in one round trip.

        It is told again until the answer arrives.  What came with an answer
        and was not sent comes again.
        """
        asked = clock()
        messages = self.query(
            "SELECT sendid, recevies, content"
            " FROM claim_jobs(NULL::sendsms, %s, %s, done => %s::bigint[],"
            " wait => '2 s', ttl => %s * interval '1 s')",
            self.sid, self.options.batch, self.sent, self.options.ttl)
        self.mine_until = asked + self.options.ttl
        self.sent = []
        return messages

    def send_batch(self, messages):
        for sendid, number, text in messages:
            if self.stopping.is_set() or not self.still_mine():
                break
            try:
                self.send(sendid, number, text)
                self.sent.append(sendid)
            except Refused as error:
                self.say(f"message {sendid} is refused: {error}")
                self.query("SELECT fail_jobs('sendsms', %s, ARRAY[%s::bigint],"
                           " error => %s, give_up => true)",
                           self.sid, sendid, str(error))

    def still_mine(self):
        """Does the lease last for another message?  Renew it if not.

        False: it has lapsed, and others may have what was not sent.
        """
        asked = clock()
        if asked + self.options.timeout < self.mine_until:
            return True
        if not self.query("SELECT renew_jobs('sendsms', %s)", self.sid)[0][0]:
            return False
        self.mine_until = asked + self.options.ttl
        return True

    def send(self, sendid, number, text):
        """Returns when the gateway has the message."""
        query = urllib.parse.urlencode({
            "username": self.options.user,
            "password": os.environ.get("KANNEL_PASSWORD", ""),
            "from": self.options.sender,
            "to": number,
            "text": text,
            "charset": "UTF-8",
            "coding": 0 if GSM.issuperset(text) else 2,
            "binfo": sendid})       # for Kannel's access log
        try:
            with urllib.request.urlopen(
                    f"{self.options.url}?{query}",
                    timeout=self.options.timeout) as answer:
                if answer.status != 202:
                    raise OSError(f"{answer.status}, not Kannel's 202")
        except urllib.error.HTTPError as error:
            answer = f"{error.code} {error.read().decode(errors='replace')}"
            # The message is at fault; all else may be better next time.
            if error.code == 400:
                raise Refused(answer) from None
            raise OSError(answer) from None

    def stop(self):
        """Tell what was sent, and give back the rest, for others to send."""
        finished = self.query(
            "SELECT finish_jobs('sendsms', %s, %s::bigint[])",
            self.sid, self.sent)[0][0]
        released = self.query("SELECT release_jobs('sendsms', %s)",
                              self.sid)[0][0]
        self.say(f"stopped: {finished} finished, {released} given back")


def main(kind=Worker):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url",
                        default="http://127.0.0.1:13013/cgi-bin/sendsms",
                        help="where the gateway's smsbox is")
    parser.add_argument("--user", default="tokenlock",
                        help="the gateway's user")
    parser.add_argument("--sender", default="12345",
                        help="number that the messages come from")
    parser.add_argument("--timeout", type=float, default=10,
                        help="seconds to wait for the gateway")
    parser.add_argument("--sid",
                        default=f"{socket.gethostname()}:{os.getpid()}",
                        help="name of this worker, unlike any other's")
    parser.add_argument("--batch", type=int, default=10,
                        help="messages to claim at a time")
    parser.add_argument("--ttl", type=float, default=60,
                        help="seconds after which a silent worker is dead")
    options = parser.parse_args()
    if options.ttl < 2 * options.timeout:
        parser.error("the ttl must be at least twice the timeout")
    kind(options).run()


if __name__ == "__main__":
    main()
