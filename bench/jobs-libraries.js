/*
 * bench/jobs-libraries.js
 *
 * node jobs-libraries.js KIND fill JOBS
 * node jobs-libraries.js KIND work WORKERS BATCH SECONDS JOBS
 *
 * Empties the table and adds so many jobs; or works on them, with one process
 * and so many workers on as many connections, until there are none or the time
 * is up, and prints how many were done a second.  The first batch of each
 * worker is not counted.  Each kind by its own calls.
 */
'use strict';

const { Pool } = require('pg');

const [kind, action, ...numbers] = process.argv.slice(2);
const payload = { content: 'some words of a message '.repeat(3) };
const connection = {
  host: process.env.PGHOST,
  port: Number(process.env.PGPORT || 5432),
  user: process.env.PGUSER,
  database: process.env.PGDATABASE,
};

const kinds = {
  /* claim_jobs: finishes the last batch in the claim of the next. */
  tokenlock(workers) {
    const pool = new Pool({ ...connection, max: workers });
    const claim = 'SELECT id, content FROM claim_jobs(NULL::job_done, $1, $2, done => $3::bigint[])';

    return {
      async fill(jobs) {
        await pool.query('TRUNCATE job_done');
        await pool.query(`CALL fill('job_done', ${jobs})`);
      },
      async loop(worker, batch, goOn, count) {
        const client = await pool.connect();
        let ids = [];

        do {
          const { rows } = await client.query({
            name: 'claim', text: claim, values: [`w${worker}`, goOn() ? batch : 0, ids],
          });
          count(ids.length);
          ids = rows.map((row) => row.id);
        } while (ids.length > 0);
        client.release();
      },
      end: () => pool.end(),
    };
  },

  /* pg-boss: fetch, then complete; its maintenance is off. */
  'pg-boss'(workers) {
    const PgBoss = require('pg-boss');
    const boss = new PgBoss({ ...connection, max: workers, supervise: false, schedule: false });

    boss.on('error', (error) => { throw error; });
    return {
      start: () => boss.start(),
      async fill(jobs) {
        await boss.createQueue('bench');
        await boss.clearStorage();
        for (let left = jobs; left > 0; left -= 5000) {
          await boss.insert(Array.from({ length: Math.min(left, 5000) },
            () => ({ name: 'bench', data: payload })));
        }
      },
      async loop(worker, batch, goOn, count) {
        while (goOn()) {
          const jobs = await boss.fetch('bench', { batchSize: batch });

          if (jobs.length === 0) break;
          await boss.complete('bench', jobs.map((job) => job.id));
          count(jobs.length);
        }
      },
      end: () => boss.stop({ graceful: false }),
    };
  },

  /*
   * graphile-worker: its runner calls a task for each job.  A batch is what
   * its local queue gets at once for all workers, finished as far as they are
   * done in the same turn of the event loop.
   */
  'graphile-worker'(workers, batch) {
    const worker = require('graphile-worker');
    const pool = new Pool({ ...connection, max: workers + 2 });
    const logger = new worker.Logger(() => () => {});
    const preset = { worker: { concurrentJobs: workers, pollInterval: 100 } };

    // it warns of a pool without handlers
    pool.on('error', () => {});
    pool.on('connect', (client) => client.on('error', () => {}));
    if (batch > 1) {
      preset.worker.localQueue = { size: batch };
      preset.worker.completeJobBatchDelay = 0;
    }
    return {
      async fill(jobs) {
        await worker.runMigrations({ pgPool: pool, logger });
        await pool.query('TRUNCATE graphile_worker._private_jobs');
        await pool.query(`SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
          SELECT ROW('bench', $1::json, NULL, NULL, NULL, NULL, NULL, NULL)::graphile_worker.job_spec
          FROM generate_series(1, $2::integer)))`, [JSON.stringify(payload), jobs]);
      },
      async all(goOn, count) {
        const runner = await worker.run({
          preset, pgPool: pool, logger, noHandleSignals: true,
          taskList: { bench: async () => { } },
        });

        runner.events.on('job:complete', () => count(1));
        while (goOn()) await new Promise((resolve) => { setTimeout(resolve, 10); });
        await runner.stop();
      },
      end: () => pool.end(),
    };
  },
};

async function work(peer, workers, batch, seconds, jobs) {
  const until = performance.now() + 1000 * seconds;
  const notCounted = workers * batch;
  let done = 0;
  let from;
  let counted;
  let to;
  const goOn = () => performance.now() < until && done < jobs;
  const count = (more) => {
    done += more;
    to = performance.now();
    if (from === undefined && done >= notCounted) {
      from = to;
      counted = done;
    }
  };

  if (peer.all) {
    await peer.all(goOn, count);
  } else {
    await Promise.all(Array.from({ length: workers },
      (_, worker) => peer.loop(worker, batch, goOn, count)));
  }
  if (from === undefined || done === counted) throw new Error('too little was done');
  console.log((1000 * (done - counted) / (to - from)).toFixed(1));
}

async function main() {
  const [first, batch, seconds, jobs] = numbers.map(Number);
  const peer = kinds[kind](action === 'work' ? first : 1, batch);

  if (peer.start) await peer.start();
  if (action === 'fill') await peer.fill(first);
  else await work(peer, first, batch, seconds, jobs);
  await peer.end();
}

main().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
