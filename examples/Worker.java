/*
 * A worker that does the jobs of a table, for you to copy from:
 *
 *     java -cp /usr/share/java/postgresql.jar Worker.java --url jdbc:postgresql://localhost/
 *
 * The table is as tokenlock has it by default: an id, status, sid; here it has
 * a column "task" as well.  Put your own work in the place of work().  Behind a
 * pooler in transaction mode the URL wants prepareThreshold=0.
 *
 * Each job is done by one live worker.  Only what a worker was doing when it
 * died, or stood still for longer than its ttl, is done again by another.
 */

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;

public class Worker {
    record Job(long id, String task) { }

    static String url = "jdbc:postgresql://localhost/";
    static String table = "jobs";
    static String sid = "java:" + ProcessHandle.current().pid();
    static long batch = 10;
    static double ttl = 60;     // seconds after which a silent worker is dead

    static volatile boolean stopping;
    static volatile boolean lapsed;     // others may have our jobs
    static volatile double mineUntil;   // unless the lease is renewed

    /* Your work.  An exception means that the job has failed. */
    static void work(Job job) throws Exception {
        if (job.task().equals("fail")) {
            throw new Exception("this one never works");
        }
        Thread.sleep(20);
        System.out.println(job.id());
    }

    static void say(String text) {
        System.err.println(sid + ": " + text);
    }

    /* Seconds on a clock that no step of the wall clock moves. */
    static double clock() {
        return System.nanoTime() / 1e9;
    }

    /* A connection that is made when needed, and made anew when it is lost. */
    static class Database {
        final String name;
        Connection connection;

        Database(String name) { this.name = name; }

        interface Rows<T> { T from(ResultSet rows) throws SQLException; }

        <T> T query(Rows<T> read, String sql, Object... values) throws SQLException {
            if (connection == null || connection.isClosed()) {
                Properties properties = new Properties();
                properties.setProperty("ApplicationName", name);
                connection = DriverManager.getConnection(url, properties);
            }
            try (PreparedStatement statement = connection.prepareStatement(sql)) {
                for (int i = 0; i < values.length; i++) {
                    if (values[i] instanceof List<?> ids) {
                        statement.setArray(i + 1,
                            connection.createArrayOf("bigint", ids.toArray()));
                    } else {
                        statement.setObject(i + 1, values[i]);
                    }
                }
                try (ResultSet rows = statement.executeQuery()) {
                    return read.from(rows);
                }
            } catch (SQLException error) {
                if (isPassing(error)) {
                    close();
                }
                throw error;
            }
        }

        /* What a function of one value answers. */
        Object value(String sql, Object... values) throws SQLException {
            return query(rows -> rows.next() ? rows.getObject(1) : null, sql, values);
        }

        void close() {
            try {
                if (connection != null) {
                    connection.close();
                }
            } catch (SQLException error) {
                say(error.getMessage());
            }
            connection = null;
        }
    }

    /* May it go better the next time? */
    static boolean isPassing(SQLException error) {
        return error.getSQLState().matches("(08|40|53|57).*");
    }

    static void run(Database database) throws SQLException, InterruptedException {
        List<Long> done = new ArrayList<>();
        for (long pause = 100;;) {
            try {
                if (stopping) {
                    stop(database, done);
                    return;
                }
                if (lapsed) {
                    finishLate(database, done);
                    done.clear();
                }
                // What was done is sent again until the answer arrives; what
                // the answer brought then comes again, too.
                List<Job> jobs = claim(database, done);
                done.clear();
                for (Job job : jobs) {
                    if (stopping || !isMine()) {
                        break;
                    }
                    if (tryWork(database, job)) {
                        done.add(job.id());
                    }
                }
                pause = 100;
            } catch (SQLException error) {
                if (!isPassing(error)) {
                    throw error;
                }
                if (stopping && !isMine()) {
                    return;
                }
                say("trying again: " + error.getMessage());
                Thread.sleep(pause);
                pause = Math.min(pause * 2, 5000);
            }
        }
    }

    /*
     * Finish what is done and get the next jobs, in one round trip.  It waits
     * for jobs, but not for long: we might be told to stop.
     */
    static List<Job> claim(Database database, List<Long> done) throws SQLException {
        double sent = clock();
        List<Job> jobs = database.query(
            rows -> {
                List<Job> all = new ArrayList<>();
                while (rows.next()) {
                    all.add(new Job(rows.getLong("id"), rows.getString("task")));
                }
                return all;
            },
            "SELECT id, task FROM claim_jobs(NULL::" + table + ", ?, ?, done => ?,"
                + " wait => '2 s', ttl => ? * interval '1 s')",
            sid, batch, done, ttl);
        mineUntil = sent + ttl;
        return jobs;
    }

    static boolean isMine() {
        lapsed |= clock() >= mineUntil;
        return !lapsed;
    }

    static boolean tryWork(Database database, Job job) throws SQLException {
        try {
            work(job);
            return true;
        } catch (Exception error) {
            say("job " + job.id() + " has failed: " + error.getMessage());
            database.value("SELECT fail_jobs(?::regclass, ?, ?, error => ?)",
                table, sid, List.of(job.id()), error.getMessage());
            return false;
        }
    }

    /* Renew the lease, from a connection of its own, while we work. */
    static void heartbeat() {
        Database database = new Database(sid + " heartbeat");
        try {
            while (true) {
                Thread.sleep((long) (ttl * 1000 / 3));
                double sent = clock();
                try {
                    if ((boolean) database.value(
                            "SELECT renew_jobs(?::regclass, ?)", table, sid)) {
                        mineUntil = Math.max(mineUntil, sent + ttl);
                    } else {
                        lapsed = true;
                    }
                } catch (SQLException error) {
                    say("no heartbeat: " + error.getMessage());
                }
            }
        } catch (InterruptedException error) {
            say("no heartbeat any more");
        }
    }

    /* The lease has lapsed: which of our jobs were still ours? */
    static void finishLate(Database database, List<Long> done) throws SQLException {
        Object finished = database.value(
            "SELECT finish_jobs(?::regclass, ?, ?)", table, sid, done);
        lapsed = false;
        say("too slow: " + finished + " of " + done.size()
            + " jobs done were still mine");
    }

    /* Give back what was not begun, so that others need not wait. */
    static void stop(Database database, List<Long> done) throws SQLException {
        Object finished = database.value(
            "SELECT finish_jobs(?::regclass, ?, ?)", table, sid, done);
        Object released = database.value(
            "SELECT release_jobs(?::regclass, ?)", table, sid);
        say("stopped: " + finished + " finished, " + released + " given back");
        database.close();
    }

    public static void main(String[] args) throws Exception {
        for (int i = 0; i + 1 < args.length; i += 2) {
            switch (args[i]) {
                case "--url" -> url = args[i + 1];
                case "--table" -> table = args[i + 1];
                case "--sid" -> sid = args[i + 1];
                case "--batch" -> batch = Long.parseLong(args[i + 1]);
                case "--ttl" -> ttl = Double.parseDouble(args[i + 1]);
                default -> throw new IllegalArgumentException(args[i]);
            }
        }
        // SIGTERM: the JVM ends when these have ended, with status 143.
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            try {
                main.join();
            } catch (InterruptedException error) {
                say("stopped too early");
            }
        }));
        Thread thread = new Thread(Worker::heartbeat);
        thread.setDaemon(true);
        thread.start();
        run(new Database(sid));
    }
}
