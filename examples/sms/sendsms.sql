-- examples/sms/sendsms.sql
--
-- An outbox of text messages, and tokenlock to share it out among workers.

CREATE EXTENSION tokenlock;

-- status: '0' ready, '2' claimed by the worker sid, '1' sent.
CREATE TABLE sendsms (
    sendid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    content text NOT NULL,
    recevies text NOT NULL,
    status char(1) NOT NULL DEFAULT '0',
    sid text
);

-- Not needed by the workers: who claimed which message, for the count that
-- the demo makes at the end.  A message that was claimed twice was taken over
-- by the second worker.
CREATE TABLE claim_log (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sendid bigint NOT NULL,
    sid text NOT NULL
);

CREATE FUNCTION log_claim() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO claim_log (sendid, sid) VALUES (NEW.sendid, NEW.sid);
    RETURN NULL;
END
$$;

CREATE TRIGGER log_claim AFTER UPDATE ON sendsms
    FOR EACH ROW
    WHEN (NEW.status = '2' AND NEW.sid IS DISTINCT FROM OLD.sid)
    EXECUTE FUNCTION log_claim();
