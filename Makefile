# tokenlock: named tokens and job claims for PostgreSQL

EXTENSION = tokenlock
PGFILEDESC = "tokenlock - named tokens and job claims"

MODULE_big = tokenlock
OBJS = \
	$(WIN32RES) \
	src/args.o \
	src/clock.o \
	src/database.o \
	src/describe.o \
	src/drop.o \
	src/fence.o \
	src/gate.o \
	src/grant.o \
	src/guard.o \
	src/hold.o \
	src/job_change.o \
	src/job_claim.o \
	src/job_describe.o \
	src/job_finish.o \
	src/job_index.o \
	src/job_key.o \
	src/job_line.o \
	src/job_look.o \
	src/job_parse.o \
	src/job_plan.o \
	src/job_position.o \
	src/job_ready.o \
	src/job_security.o \
	src/job_set.o \
	src/job_settings.o \
	src/job_sql.o \
	src/job_table.o \
	src/job_turn.o \
	src/job_turn_find.o \
	src/job_turn_sql.o \
	src/job_turns.o \
	src/job_views.o \
	src/job_wait.o \
	src/job_wake.o \
	src/job_warn.o \
	src/job_worker.o \
	src/job_xact.o \
	src/jobfuncs.o \
	src/jobs.o \
	src/line.o \
	src/page.o \
	src/procedure.o \
	src/promise.o \
	src/record.o \
	src/recover.o \
	src/session.o \
	src/several.o \
	src/shmem.o \
	src/sqlfuncs.o \
	src/statefile.o \
	src/stats.o \
	src/token.o \
	src/tokenlock.o \
	src/views.o \
	src/wait.o

DATA = $(call files-in,sql,tokenlock--*.sql)

# Callbacks have their parameters from the server, used or not.
PG_CFLAGS = -Wextra -Wno-unused-parameter
# -Wextra is about our code, so the server's headers are system headers.
PG_CPPFLAGS = -isystem $(shell $(PG_CONFIG) --includedir-server)

# Regression tests: inputs in test/sql, answers in expected.  Each can run
# alone and in any order.
REGRESS = $(call names-in,test/sql,sql)
REGRESS_OPTS = --inputdir=$(srcdir)/test
REGRESS_PREP = expected-link

# Isolation tests: test/isolation/specs, answers in test/isolation/expected.
ISOLATION = $(call names-in,test/isolation/specs,spec)
ISOLATION_OPTS = --inputdir=$(srcdir)/test/isolation

# TAP tests need IPC::Run.
TAP_TESTS := $(shell perl -MIPC::Run -e 'print 1' 2>/dev/null)
PROVE_TESTS = test/t/*.pl

PGTAP_TESTS = $(srcdir)/test/pgtap/*.sql
PGTAP_DB = pgtap_$(EXTENSION)

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)

# Files of a folder below $(srcdir): with their path from there, or, of one
# suffix, with neither path nor suffix.
files-in = $(sort $(patsubst $(srcdir)/%,%,$(wildcard $(srcdir)/$(1)/$(2))))
names-in = $(basename $(notdir $(call files-in,$(1),*.$(2))))

include $(PGXS)

# A get and put take some 0.2 us, a sixth of it for calls from file to file.
# gcc can see through those, also where a function could be replaced from
# outside, which nobody does.  The server's functions are called by their
# addresses, not by way of the linker's table.
ifneq (,$(filter gcc% %-gcc,$(notdir $(firstword $(CC)))))
override CFLAGS += -flto=auto -fno-semantic-interposition -fno-plt
override SHLIB_LINK += -Wl,-Bsymbolic-functions
endif

# A PostgreSQL built without --enable-depend, as Debian's, does not know which
# object depends on which header.
$(OBJS) $(OBJS:.o=.bc): $(wildcard $(srcdir)/src/*.h)

# In a build outside the source tree, the compiler makes no folder for objects,
$(shell mkdir -p src)

# and PostgreSQL 15 looks here for answers.
.PHONY: expected-link
expected-link:
	@test -e expected || ln -s '$(abspath $(srcdir))/expected' expected

# The pgTAP tests, in a fresh database of the running server.
.PHONY: check-pgtap
check-pgtap:
	'$(bindir)/dropdb' --if-exists $(PGTAP_DB)
	'$(bindir)/createdb' -T template0 -E UTF8 $(PGTAP_DB)
	PATH='$(bindir)':"$$PATH" pg_prove -d $(PGTAP_DB) $(PGTAP_TESTS)
	'$(bindir)/dropdb' $(PGTAP_DB)

# A release for PGXN: what is committed, with the version that META.json has.
.PHONY: dist
dist:
	version=$$(sed -n 's/^   "version": "\(.*\)",$$/\1/p' '$(srcdir)/META.json') && \
	git -C '$(srcdir)' archive --format=zip --prefix="$(EXTENSION)-$$version/" \
		-o "$(CURDIR)/$(EXTENSION)-$$version.zip" HEAD && \
	echo "$(EXTENSION)-$$version.zip"
