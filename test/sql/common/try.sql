\set ECHO none
-- Runs a query for one value, shows the value or the error with all its parts.
CREATE FUNCTION pg_temp.try(query text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    answer text;
    detail text;
    hint text;
BEGIN
    EXECUTE query INTO answer;
    RETURN coalesce(answer, 'NULL');
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT;
    RETURN concat_ws(' / ', SQLSTATE || ' ' || SQLERRM,
        nullif(detail, ''), nullif(hint, ''));
END $$;
\set ECHO all
