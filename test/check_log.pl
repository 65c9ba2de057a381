#!/usr/bin/perl
#
# Checks the logs that a stress run of tokens has left: TokenCheck.pm says what
# they are and what is checked.
#
#     check_log.pl LOGFILE...
#
# Prints each violation and exits with 1 if there is one.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/perl";

use TokenCheck;

die "usage: check_log.pl LOGFILE...\n" unless @ARGV;

my $check = TokenCheck->new(@ARGV);
my @violations = $check->violations;
print "$_\n" for @violations;
exit(@violations ? 1 : 0);
