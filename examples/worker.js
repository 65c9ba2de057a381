#!/usr/bin/env node
/*
 * A worker that does the jobs of a table, for you to copy from: "npm install"
 * in this folder, then "node worker.js".
 *
 * The table is as tokenlock has it by default: an id, status, sid; here it has
 * a column "task" as well.  Put your own work in the place of work().  PGHOST,
 * PGDATABASE etc. say where the database is.
 *
 * Each job is done by one live worker.  Only what a worker was doing when it
 * died, or stood still for longer than its ttl, is done again by another.
 */
'use strict';

const os = require('node:os');
const { setTimeout: sleep } = require('node:timers/promises');
const { parseArgs } = require('node:util');
const pg = require('pg');

/* Your work.  An exception means that the job has failed. */
async function work(job) {
  if (job.task === 'fail') {
    throw new Error('this one never works');
  }
  await sleep(20);
  process.stdout.write(`${job.id}\n`);
}

/* Seconds on a clock that no step of the wall clock moves. */
function clock() {
  return Number(process.hrtime.bigint()) / 1e9;
}

/* A connection that is made when needed, and made anew when it is lost. */
class Database {
  constructor(name) {
    this.name = name;
    this.client = null;
  }

  async rows(statement, values) {
    try {
      if (this.client === null) {
        this.client = new pg.Client({ application_name: this.name });
        // The server's farewell to an idle connection; the next call sees it.
        this.client.on('error', () => {});
        await this.client.connect();
      }
      return (await this.client.query(statement, values)).rows;
    } catch (error) {
      if (isLost(error)) {
        this.close();
      }
      throw error;
    }
  }

  async value(statement, values) {
    return (await this.rows(statement, values))[0].value;
  }

  close() {
    if (this.client !== null) {
      this.client.end().catch(() => {});
    }
    this.client = null;
  }
}

/* Is the connection gone?  What the server says has an SQLSTATE. */
function isLost(error) {
  return !/^[0-9A-Z]{5}$/.test(error.code ?? '') || /^(08|57P)/.test(error.code);
}

/* May it go better the next time? */
function isPassing(error) {
  return isLost(error) || /^(40|53)/.test(error.code);
}

class Worker {
  constructor(options) {
    this.table = options.table;
    this.sid = options.sid;
    this.batch = Number(options.batch);
    this.ttl = Number(options.ttl);
    this.database = new Database(this.sid);
    this.stopping = false;
    this.lapsed = false; // others may have our jobs
    this.mineUntil = 0; // unless the lease is renewed
  }

  say(text) {
    process.stderr.write(`${this.sid}: ${text}\n`);
  }

  async run() {
    let done = [];
    let wait = 0.1;

    process.on('SIGTERM', () => { this.stopping = true; });
    const heartbeat = this.startHeartbeat();
    for (;;) {
      try {
        if (this.stopping) {
          await this.stop(done);
          break;
        }
        if (this.lapsed) {
          await this.finishLate(done);
          done = [];
        }
        // What was done is sent again until the answer arrives; what the
        // answer brought then comes again, too.
        const jobs = await this.claim(done);
        done = [];
        for (const job of jobs) {
          if (this.stopping || !this.isMine()) {
            break;
          }
          if (await this.tryWork(job)) {
            done.push(job.id);
          }
        }
        wait = 0.1;
      } catch (error) {
        if (!isPassing(error)) {
          throw error;
        }
        if (this.stopping && !this.isMine()) {
          break;
        }
        this.say(`trying again: ${error.message}`);
        await sleep(wait * 1000);
        wait = Math.min(wait * 2, 5);
      }
    }
    clearInterval(heartbeat.timer);
    heartbeat.database.close();
    this.database.close();
  }

  /*
   * Finish what is done and get the next jobs, in one round trip.  It waits
   * for jobs, but not for long: we might be told to stop.
   */
  async claim(done) {
    const sent = clock();
    const jobs = await this.database.rows(
      `SELECT * FROM claim_jobs(NULL::${pg.escapeIdentifier(this.table)}, $1, $2,
        done => $3::bigint[], wait => '2 s', ttl => $4 * interval '1 s')`,
      [this.sid, this.batch, done, this.ttl]);
    this.mineUntil = sent + this.ttl;
    return jobs;
  }

  isMine() {
    this.lapsed ||= clock() >= this.mineUntil;
    return !this.lapsed;
  }

  async tryWork(job) {
    try {
      await work(job);
    } catch (error) {
      this.say(`job ${job.id} has failed: ${error.message}`);
      await this.database.rows('SELECT fail_jobs($1, $2, $3::bigint[], error => $4)',
        [this.table, this.sid, [job.id], error.message]);
      return false;
    }
    return true;
  }

  /* Renew the lease, from a connection of its own, while we work. */
  startHeartbeat() {
    const database = new Database(`${this.sid} heartbeat`);
    const timer = setInterval(async () => {
      const sent = clock();
      try {
        if (await database.value('SELECT renew_jobs($1, $2) AS value',
          [this.table, this.sid])) {
          this.mineUntil = Math.max(this.mineUntil, sent + this.ttl);
        } else {
          this.lapsed = true;
        }
      } catch (error) {
        this.say(`no heartbeat: ${error.message}`);
      }
    }, this.ttl * 1000 / 3);
    return { timer, database };
  }

  /* The lease has lapsed: which of our jobs were still ours? */
  async finishLate(done) {
    const finished = await this.database.value(
      'SELECT finish_jobs($1, $2, $3::bigint[]) AS value',
      [this.table, this.sid, done]);
    this.lapsed = false;
    this.say(`too slow: ${finished} of ${done.length} jobs done were still mine`);
  }

  /* Give back what was not begun, so that others need not wait. */
  async stop(done) {
    const finished = await this.database.value(
      'SELECT finish_jobs($1, $2, $3::bigint[]) AS value',
      [this.table, this.sid, done]);
    const released = await this.database.value(
      'SELECT release_jobs($1, $2) AS value', [this.table, this.sid]);
    this.say(`stopped: ${finished} finished, ${released} given back`);
  }
}

const { values: options } = parseArgs({
  options: {
    table: { type: 'string', default: 'jobs' },
    sid: { type: 'string', default: `${os.hostname()}:${process.pid}` },
    batch: { type: 'string', default: '10' },
    ttl: { type: 'string', default: '60' },
  },
});

new Worker(options).run().catch((error) => {
  console.error(`${options.sid}: ${error.stack}`);
  process.exit(1);
});
