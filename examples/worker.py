#!/usr/bin/python3
"""A worker that does the jobs of a table, for you to copy from.

The table is as tokenlock has it by default: an id, status, sid; here it has a
column "task" as well.  Put your own work in the place of work().  PGHOST,
PGDATABASE etc. say where the database is.

Each job is done by one live worker.  Only what a worker was doing when it died,
or stood still for longer than its ttl, is done again by another.
"""

import argparse
import os
import signal
import socket
import sys
import threading
import time

import psycopg2
from psycopg2 import sql


def work(job):
    """Your work.  An exception means that the job has failed."""
    if job["task"] == "fail":
        raise ValueError("this one never works")
    time.sleep(0.02)
    print(job["id"], flush=True)


def clock():
    """Seconds that go on in suspend, as they do for the server's leases."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Database:
    """A connection that is made when needed, and made anew when it is lost."""

    def __init__(self, name):
        self.name = name
        self.connection = None

    def value(self, statement, arguments):
        return self.rows(statement, arguments)[0]["value"]

    def rows(self, statement, arguments):
        try:
            if self.connection is None:
                self.connection = psycopg2.connect(application_name=self.name)
                self.connection.autocommit = True
            with self.connection.cursor() as cursor:
                cursor.execute(statement, arguments)
                names = [column.name for column in cursor.description]
                return [dict(zip(names, row)) for row in cursor]
        except (psycopg2.OperationalError, psycopg2.InterfaceError):
            self.close()
            raise

    def close(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None


class Worker:
    def __init__(self, options):
        self.options = options
        self.sid = options.sid
        self.database = Database(self.sid)
        self.claim_statement = sql.SQL(
            "SELECT * FROM claim_jobs(NULL::{}, %s, %s,"
            " done => %s::bigint[], wait => '2 s',"
            " ttl => %s * interval '1 s')").format(
                sql.Identifier(options.table))
        self.stopping = threading.Event()
        self.lapsed = threading.Event()     # others may have our jobs
        self.mine_until = 0                 # unless the lease is renewed

    def say(self, text):
        print(f"{self.sid}: {text}", file=sys.stderr, flush=True)

    def run(self):
        signal.signal(signal.SIGTERM, lambda *_: self.stopping.set())
        threading.Thread(target=self.heartbeat, daemon=True).start()
        done = []
        pause = 0.1
        while True:
            try:
                if self.stopping.is_set():
                    self.stop(done)
                    return
                if self.lapsed.is_set():
                    self.finish_late(done)
                    done = []
                # What was done is sent again until the answer arrives; what
                # the answer brought then comes again, too.
                jobs = self.claim(done)
                done = []
                for job in jobs:
                    if self.stopping.is_set() or not self.is_mine():
                        break
                    if self.try_work(job):
                        done.append(job["id"])
                pause = 0.1
            except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
                if self.stopping.is_set() and not self.is_mine():
                    return
                self.say(f"trying again: {str(error).strip()}")
                time.sleep(pause)
                pause = min(pause * 2, 5)

    def claim(self, done):
        """Finish what is done and get the next jobs, in one round trip.

        It waits for jobs, but not for long: we might be told to stop.
        """
        sent = clock()
        jobs = self.database.rows(
            self.claim_statement,
            (self.sid, self.options.batch, done, self.options.ttl))
        self.mine_until = sent + self.options.ttl
        return jobs

    def is_mine(self):
        if clock() >= self.mine_until:
            self.lapsed.set()
        return not self.lapsed.is_set()

    def try_work(self, job):
        try:
            work(job)
        except Exception as error:
            self.say(f"job {job['id']} has failed: {error}")
            self.database.rows("SELECT fail_jobs(%s, %s, %s, error => %s)",
                               (self.options.table, self.sid, [job["id"]],
                                str(error)))
            return False
        return True

    def heartbeat(self):
        """Renew the lease, from a connection of its own, while we work."""
        database = Database(f"{self.sid} heartbeat")
        while True:
            time.sleep(self.options.ttl / 3)
            sent = clock()
            try:
                alive = database.value("SELECT renew_jobs(%s, %s) AS value",
                                       (self.options.table, self.sid))
            except psycopg2.Error as error:
                self.say(f"no heartbeat: {str(error).strip()}")
                continue
            if alive:
                self.mine_until = max(self.mine_until,
                                      sent + self.options.ttl)
            else:
                self.lapsed.set()

    def finish_late(self, done):
        """The lease has lapsed: which of our jobs were still ours?"""
        finished = self.database.value(
            "SELECT finish_jobs(%s, %s, %s::bigint[]) AS value",
            (self.options.table, self.sid, done))
        self.lapsed.clear()
        self.say(f"too slow: {finished} of {len(done)} jobs done were still mine")

    def stop(self, done):
        """Give back what was not begun, so that others need not wait."""
        finished = self.database.value(
            "SELECT finish_jobs(%s, %s, %s::bigint[]) AS value",
            (self.options.table, self.sid, done))
        released = self.database.value(
            "SELECT release_jobs(%s, %s) AS value",
            (self.options.table, self.sid))
        self.say(f"stopped: {finished} finished, {released} given back")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--table", default="jobs")
    parser.add_argument("--sid",
                        default=f"{socket.gethostname()}:{os.getpid()}",
                        help="name of this worker, unlike any other's")
    parser.add_argument("--batch", type=int, default=10,
                        help="jobs to claim at a time")
    parser.add_argument("--ttl", type=float, default=60,
                        help="seconds after which a silent worker is dead")
    Worker(parser.parse_args()).run()


if __name__ == "__main__":
    main()
