# Every SQL example of the documents is run, in the order in which it stands
# there, in one session and one database for each document.
#
# An example is a block of ```sql; one marked "skip" is not run.  A statement
# ends with its semicolon (not one between $$ and $$), and what it must answer
# follows in lines that begin with "-- =>": a row each, its columns divided by |,
# or ERROR and the SQLSTATE.  A statement without such lines may answer what it
# likes, but not an error.
#
# A block that says "from FILE" behind its language is an excerpt of that file,
# word for word; it may be indented otherwise.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Utils;
use Test::More;
use TokenlockTest;

my $top = "$FindBin::RealBin/../..";
my $node = new_server('documents');

# The statements of a document: [ line number, SQL, expected lines or undef ].
sub statements
{
	my ($file) = @_;
	my ($in_block, $sql, @found) = (0, '');

	open(my $fh, '<:raw', $file) or die "could not read $file: $!";
	while (my $line = <$fh>)
	{
		chomp $line;
		if ($line =~ /^```/)
		{
			die "$file, line $.: a statement without its semicolon"
			  if $sql =~ /\S/;
			$in_block = !$in_block && $line =~ /^```sql\s*$/ ? 1 : 0;
			next;
		}
		next unless $in_block;
		if ($line =~ /^-- => ?(.*)/)
		{
			push @{ $found[-1][2] }, $1;
			next;
		}
		$sql .= "$line\n";
		next unless $line =~ /;\s*(--.*)?$/;
		next if (() = $sql =~ /\$\$/g) % 2;
		push @found, [ $., $sql, undef ];
		$sql = '';
	}
	close($fh);
	return @found;
}

# What a session answers, in the form of the documents.
sub answer_lines
{
	my ($client, $sql) = @_;
	my $result = $client->send($sql)->result;

	return 'ERROR ' . $result->{error}->code if $result->{error};
	return map { join '|', map { $_ // '' } @{$_} } @{ $result->{rows} };
}

for my $file ("$top/README.md", glob("$top/doc/*.md"))
{
	(my $name = $file) =~ s{^\Q$top\E/}{};
	my @statements = statements($file) or next;
	my $database = 'doc_' . ($name =~ s/\W/_/gr);

	subtest $name => sub {
		$node->safe_psql('postgres', qq(CREATE DATABASE "$database"));
		$node->safe_psql($database, 'CREATE EXTENSION tokenlock');
		my $client = session($node, dbname => $database);

		for my $statement (@statements)
		{
			my ($line, $sql, $expected) = @{$statement};
			my @lines = answer_lines($client, $sql);

			if (defined $expected)
			{
				is_deeply(\@lines, $expected, "line $line");
			}
			else
			{
				unlike($lines[0] // '', qr/^ERROR /, "line $line");
			}
		}
		$client->quit;
	};
}

# The excerpts of a document: [ line number, file, text ].
sub excerpts
{
	my ($file) = @_;
	my ($in_block, @found) = (0);

	open(my $fh, '<:raw', $file) or die "could not read $file: $!";
	while (my $line = <$fh>)
	{
		if ($line =~ /^```/)
		{
			$in_block = !$in_block && $line =~ /^```\w+ from (\S+)$/;
			push @found, [ $., $1, '' ] if $in_block;
			next;
		}
		$found[-1][2] .= $line if $in_block;
	}
	close($fh);
	return @found;
}

sub without_indent { return $_[0] =~ s/^[ \t]+//mgr; }

for my $file ("$top/README.md", glob("$top/doc/*.md"))
{
	for my $excerpt (excerpts($file))
	{
		my ($line, $source, $text) = @{$excerpt};

		ok( index(without_indent(slurp_file("$top/$source")),
				without_indent($text)) >= 0,
			basename($file) . ", line $line: an excerpt of $source");
	}
}

$node->stop;
done_testing();
