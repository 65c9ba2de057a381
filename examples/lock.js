#!/usr/bin/env node
/*
 * A lock that outlives its connection, for you to copy from: "npm install" in
 * this folder, then "node lock.js".
 *
 * It is a lease of a named owner: it needs no connection while it is held, and
 * a pooler may stand in between.  A heartbeat renews it, and comes to know when
 * it is lost; what is written to the database is guarded, so that nothing is
 * committed by a holder that comes too late.
 *
 * Here the holder writes a line into the table "ledger" again and again.
 * PGHOST, PGDATABASE etc. say where the database is.
 */
'use strict';

const os = require('node:os');
const { setTimeout: sleep } = require('node:timers/promises');
const { parseArgs } = require('node:util');
const pg = require('pg');

/* The lock is not ours any more: others may have it. */
class Lost extends Error {}

function say(text) {
  process.stderr.write(`${text}\n`);
}

/* Seconds on a clock that no step of the wall clock moves. */
function clock() {
  return Number(process.hrtime.bigint()) / 1e9;
}

async function connect(options, purpose = '') {
  const client = new pg.Client({ application_name: options.owner + purpose });
  // The server's farewell to an idle connection; the next call sees it.
  client.on('error', () => {});
  await client.connect();
  return client;
}

/* Wait in line for two seconds.  The place is kept for the next try. */
async function take(options, client) {
  const { rows: [{ granted, fence }] } = await client.query(
    `SELECT granted, fence FROM token_request($1, owner => $2, wait => '2 s',
      ttl => $3 * interval '1 s', keep_place => '10 s')`,
    [options.name, options.owner, options.ttl]);
  if (!granted) {
    return null;
  }
  const grant = new Grant(options, fence);
  // It came at some time while we waited: count from now.
  await grant.renew(client);
  grant.heartbeat();
  return grant;
}

class Grant {
  constructor(options, fence) {
    this.options = options;
    this.fence = fence;
    this.over = new AbortController(); // lost, or put
    this.mineUntil = 0;
  }

  /* The fence says which grant, should the owner have a new one by now. */
  async call(client, name) {
    const { rows: [{ answer }] } = await client.query(
      `SELECT ${name}($1, owner => $2, fence => $3) AS answer`,
      [this.options.name, this.options.owner, this.fence]);
    return answer;
  }

  async renew(client) {
    const sent = clock();
    if (await this.call(client, 'token_renew')) {
      this.mineUntil = sent + this.options.ttl * 0.999;
    } else {
      this.over.abort();
    }
  }

  /* From a connection of its own, while the other one works or waits. */
  async heartbeat() {
    const { ttl } = this.options;
    const { signal } = this.over;
    let client = null;
    while (await sleep(ttl * 1000 / 3, true, { signal }).catch(() => false)) {
      try {
        client ??= await connect(this.options, ' heartbeat');
        await this.renew(client);
      } catch (error) {
        say(`no heartbeat: ${error.message}`);
        client?.end().catch(() => {});
        client = null;
      }
    }
    client?.end().catch(() => {});
  }

  /* To be asked before each step of work, above all if it has no guard. */
  isMine() {
    return !this.over.signal.aborted && clock() < this.mineUntil;
  }

  /* This transaction is committed only while the lock is ours. */
  async guard(client) {
    if (!this.isMine()) {
      throw new Lost('its time is over');
    }
    await this.call(client, 'token_guard');
  }
}

async function writeLine(grant, client) {
  await client.query('BEGIN');
  try {
    await grant.guard(client);
    await client.query('INSERT INTO ledger (fence, owner) VALUES ($1, $2)',
      [grant.fence, grant.options.owner]);
    await client.query('COMMIT');
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {});
    // A guard that fails: at once, or at commit.
    throw /^(55000|40001)$/.test(error.code) ? new Lost(error.message) : error;
  }
}

async function run(options) {
  let client = null;
  let grant = null;
  let stopping = false;

  process.on('SIGTERM', () => { stopping = true; });
  while (grant || !stopping) {
    try {
      client ??= await connect(options);
      if (!grant) {
        grant = await take(options, client);
        if (grant) {
          say(`taken, fence ${grant.fence}`);
        }
      } else if (!stopping) {
        await writeLine(grant, client);
        await sleep(20);
      } else {
        const put = await grant.call(client, 'token_put');
        grant.over.abort();
        say(put ? 'put' : 'lost: it was not ours any more');
        grant = null;
      }
    } catch (error) {
      if (error instanceof Lost) {
        say(`lost: ${error.message}`);
        grant.over.abort();
        grant = null;
      } else if (/^(?!08|53|57)[0-9A-Z]{5}$/.test(error.code)) {
        throw error; // what will be no better the next time
      } else if (stopping && !grant?.isMine()) {
        break;
      } else {
        say(`trying again: ${error.message}`);
        client?.end().catch(() => {});
        client = null; // but the lock is still there
        await sleep(100);
      }
    }
  }
  grant?.over.abort();
  client?.end().catch(() => {});
}

const { values } = parseArgs({
  options: {
    name: { type: 'string', default: 'ledger' },
    owner: { type: 'string', default: `${os.hostname()}:${process.pid}` },
    ttl: { type: 'string', default: '30' },
  },
});

run({ ...values, ttl: Number(values.ttl) }).catch((error) => {
  console.error(error.stack);
  process.exit(1);
});
