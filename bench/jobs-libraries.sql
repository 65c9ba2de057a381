/*
 * bench/jobs-libraries.sql
 *
 * A queue of PgQ, whose batches are as large as the ticks make them.
 */

CREATE EXTENSION pgq;
SELECT pgq.create_queue('bench');
SELECT pgq.set_queue_config('bench', 'ticker_max_count', '1');

/* So many batches for a consumer that has none before. */
CREATE PROCEDURE fill_pgq(batches integer, batch integer) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pgq.unregister_consumer('bench', 'worker')
		FROM pgq.get_consumer_info('bench', 'worker');
	PERFORM pgq.register_consumer('bench', 'worker');
	COMMIT;
	FOR i IN 1..batches LOOP
		PERFORM pgq.insert_event('bench', 'message',
			repeat('some words of a message ', 3))
			FROM generate_series(1, batch);
		COMMIT;
		PERFORM pgq.ticker('bench');
		COMMIT;
	END LOOP;
END $$;
