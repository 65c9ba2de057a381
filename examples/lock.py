#!/usr/bin/python3
"""A lock that outlives its connection, for you to copy from.

It is a lease of a named owner: it needs no connection while it is held, and a
pooler may stand in between.  A heartbeat renews it, and comes to know when it
is lost; what is written to the database is guarded, so that nothing is
committed by a holder that comes too late.

Here the holder writes a line into the table "ledger" again and again.  PGHOST,
PGDATABASE etc. say where the database is.
"""

import argparse
import os
import signal
import socket
import sys
import threading
import time

import psycopg2
from psycopg2 import errors


class Lost(Exception):
    """The lock is not ours any more: others may have it."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def clock():
    """Seconds that go on in suspend, as they do for the server's leases."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def connect(options, purpose=""):
    connection = psycopg2.connect(application_name=options.owner + purpose)
    connection.autocommit = True
    return connection


def take(options, cursor):
    """Wait in line for two seconds.  The place is kept for the next try."""
    cursor.execute(
        "SELECT granted, fence FROM token_request(%s, owner => %s,"
        " wait => '2 s', ttl => %s * interval '1 s', keep_place => '10 s')",
        (options.name, options.owner, options.ttl))
    granted, fence = cursor.fetchone()
    return Grant(options, cursor, fence) if granted else None


class Grant:
    def __init__(self, options, cursor, fence):
        self.options = options
        self.fence = fence
        self.over = threading.Event()   # lost, or put
        self.mine_until = 0
        # It came at some time while we waited: count from now.
        self.renew(cursor)
        threading.Thread(target=self.heartbeat, daemon=True).start()

    def call(self, cursor, function):
        """The fence says which grant, should the owner have a new one by now."""
        cursor.execute(f"SELECT {function}(%s, owner => %s, fence => %s)",
                       (self.options.name, self.options.owner, self.fence))
        return cursor.fetchone()[0]

    def renew(self, cursor):
        sent = clock()
        if self.call(cursor, "token_renew"):
            self.mine_until = sent + self.options.ttl * 0.999
        else:
            self.over.set()

    def heartbeat(self):
        """From a connection of its own, while the other one works or waits."""
        connection = None
        while not self.over.wait(self.options.ttl / 3):
            try:
                if connection is None:
                    connection = connect(self.options, " heartbeat")
                self.renew(connection.cursor())
            except psycopg2.Error as error:
                say(f"no heartbeat: {str(error).strip()}")
                connection = None
        if connection is not None:
            connection.close()

    def is_mine(self):
        """To be asked before each step of work, above all if it has no guard."""
        return not self.over.is_set() and clock() < self.mine_until

    def guard(self, cursor):
        """This transaction is committed only while the lock is ours."""
        if not self.is_mine():
            raise Lost("its time is over")
        try:
            self.call(cursor, "token_guard")
        except errors.ObjectNotInPrerequisiteState as error:
            raise Lost("the guard says so") from error


def write_line(grant, connection):
    with connection, connection.cursor() as cursor:     # one transaction
        grant.guard(cursor)
        cursor.execute("INSERT INTO ledger (fence, owner) VALUES (%s, %s)",
                       (grant.fence, grant.options.owner))


def run(options, stopping):
    connection = grant = None
    while grant or not stopping.is_set():
        try:
            if connection is None:
                connection = connect(options)
            if grant is None:
                grant = take(options, connection.cursor())
                if grant:
                    say(f"taken, fence {grant.fence}")
            elif not stopping.is_set():
                write_line(grant, connection)
                time.sleep(0.02)
            else:
                put = grant.call(connection.cursor(), "token_put")
                grant.over.set()
                say("put" if put else "lost: it was not ours any more")
                grant = None
        except (Lost, errors.SerializationFailure) as error:
            say(f"lost: {str(error).strip()}")
            grant.over.set()
            grant = None
        except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
            if stopping.is_set() and not (grant and grant.is_mine()):
                return
            say(f"trying again: {str(error).strip()}")
            connection = None       # but the lock is still there
            time.sleep(0.1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--name", default="ledger")
    parser.add_argument("--owner",
                        default=f"{socket.gethostname()}:{os.getpid()}",
                        help="name of this process, unlike any other's")
    parser.add_argument("--ttl", type=float, default=30,
                        help="seconds after which a silent holder is dead")
    options = parser.parse_args()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    run(options, stopping)


if __name__ == "__main__":
    main()
