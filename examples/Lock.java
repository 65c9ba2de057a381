/*
 * A lock that outlives its connection, for you to copy from:
 *
 *     java -cp /usr/share/java/postgresql.jar Lock.java --url jdbc:postgresql://localhost/
 *
 * It is a lease of a named owner: it needs no connection while it is held, and
 * a pooler may stand in between (in transaction mode the URL then wants
 * prepareThreshold=0).  A heartbeat renews it, and comes to know when it is
 * lost; what is written to the database is guarded, so that nothing is
 * committed by a holder that comes too late.
 *
 * Here the holder writes a line into the table "ledger" again and again.
 */

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

public class Lock {
    static String url = "jdbc:postgresql://localhost/";
    static String name = "ledger";
    static String owner = "java:" + ProcessHandle.current().pid();
    static double ttl = 30;     // seconds after which a silent holder is dead
    static volatile boolean stopping;

    /* The lock is not ours any more: others may have it. */
    static class Lost extends Exception {
        Lost(String why) { super(why); }
    }

    static void say(String text) {
        System.err.println(text);
    }

    /* Seconds on a clock that no step of the wall clock moves. */
    static double clock() {
        return System.nanoTime() / 1e9;
    }

    static Connection connect(String purpose) throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("ApplicationName", owner + purpose);
        return DriverManager.getConnection(url, properties);
    }

    static ResultSet query(Connection connection, String sql, Object... values)
            throws SQLException {
        PreparedStatement statement = connection.prepareStatement(sql);
        statement.closeOnCompletion();
        for (int i = 0; i < values.length; i++) {
            statement.setObject(i + 1, values[i]);
        }
        ResultSet result = statement.executeQuery();
        result.next();
        return result;
    }

    /* Wait in line for two seconds.  The place is kept for the next try. */
    static Grant take(Connection connection) throws SQLException {
        try (ResultSet row = query(connection,
                "SELECT granted, fence FROM token_request(?, owner => ?,"
                + " wait => '2 s', ttl => ? * interval '1 s',"
                + " keep_place => '10 s')", name, owner, ttl)) {
            return row.getBoolean(1) ? new Grant(connection, row.getLong(2)) : null;
        }
    }

    static class Grant {
        final long fence;
        final CountDownLatch over = new CountDownLatch(1);  // lost, or put
        volatile double mineUntil;

        Grant(Connection connection, long fence) throws SQLException {
            this.fence = fence;
            // It came at some time while we waited: count from now.
            renew(connection);
            Thread thread = new Thread(this::heartbeat);
            thread.setDaemon(true);
            thread.start();
        }

        /* The fence says which grant, should the owner have a new one by now. */
        ResultSet call(Connection connection, String function) throws SQLException {
            return query(connection,
                "SELECT " + function + "(?, owner => ?, fence => ?)",
                name, owner, fence);
        }

        void renew(Connection connection) throws SQLException {
            double sent = clock();
            try (ResultSet row = call(connection, "token_renew")) {
                if (row.getBoolean(1)) {
                    mineUntil = sent + ttl * 0.999;
                } else {
                    over.countDown();
                }
            }
        }

        /* From a connection of its own, while the other one works or waits. */
        void heartbeat() {
            Connection connection = null;
            try {
                while (!over.await((long) (ttl * 1000 / 3), TimeUnit.MILLISECONDS)) {
                    try {
                        if (connection == null) {
                            connection = connect(" heartbeat");
                        }
                        renew(connection);
                    } catch (SQLException error) {
                        say("no heartbeat: " + error.getMessage());
                        close(connection);
                        connection = null;
                    }
                }
            } catch (InterruptedException error) {
                say("no heartbeat any more");
            }
            close(connection);
        }

        /* To be asked before each step of work, above all if it has no guard. */
        boolean isMine() {
            return over.getCount() > 0 && clock() < mineUntil;
        }

        /* This transaction is committed only while the lock is ours. */
        void guard(Connection connection) throws SQLException, Lost {
            if (!isMine()) {
                throw new Lost("its time is over");
            }
            call(connection, "token_guard").close();
        }

        boolean put(Connection connection) throws SQLException {
            try (ResultSet row = call(connection, "token_put")) {
                over.countDown();
                return row.getBoolean(1);
            }
        }
    }

    static void close(Connection connection) {
        try {
            if (connection != null) {
                connection.close();
            }
        } catch (SQLException error) {
            say(error.getMessage());
        }
    }

    static void writeLine(Grant grant, Connection connection)
            throws SQLException, Lost {
        connection.setAutoCommit(false);
        try (PreparedStatement statement = connection.prepareStatement(
                "INSERT INTO ledger (fence, owner) VALUES (?, ?)")) {
            grant.guard(connection);
            statement.setLong(1, grant.fence);
            statement.setString(2, owner);
            statement.executeUpdate();
            connection.commit();
        } catch (SQLException error) {
            String state = error.getSQLState();
            if (state.equals("55000") || state.equals("40001")) {
                throw new Lost(error.getMessage());     // by the guard
            }
            throw error;
        } finally {
            if (!connection.isClosed()) {
                connection.rollback();
                connection.setAutoCommit(true);
            }
        }
    }

    static void run() throws SQLException, InterruptedException {
        Connection connection = null;
        Grant grant = null;
        while (grant != null || !stopping) {
            try {
                if (connection == null) {
                    connection = connect("");
                }
                if (grant == null) {
                    grant = take(connection);
                    if (grant != null) {
                        say("taken, fence " + grant.fence);
                    }
                } else if (!stopping) {
                    writeLine(grant, connection);
                    Thread.sleep(20);
                } else {
                    say(grant.put(connection) ? "put" : "lost: it was not ours any more");
                    grant = null;
                }
            } catch (Lost error) {
                say("lost: " + error.getMessage());
                grant.over.countDown();
                grant = null;
            } catch (SQLException error) {
                if (!error.getSQLState().matches("(08|53|57).*")) {
                    throw error;        // it will be no better the next time
                }
                if (stopping && (grant == null || !grant.isMine())) {
                    break;
                }
                say("trying again: " + error.getMessage());
                close(connection);
                connection = null;      // but the lock is still there
                Thread.sleep(100);
            }
        }
        close(connection);
    }

    public static void main(String[] args) throws Exception {
        for (int i = 0; i + 1 < args.length; i += 2) {
            switch (args[i]) {
                case "--url" -> url = args[i + 1];
                case "--name" -> name = args[i + 1];
                case "--owner" -> owner = args[i + 1];
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
        run();
    }
}
