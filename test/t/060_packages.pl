# What packages are made from: META.json is as PGXN's specification 1.0.0 wants
# it, the versions agree, and what they name is there.

use strict;
use warnings FATAL => 'all';

use FindBin;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::RealBin/../..";
my $semver = qr/^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$/;
my $string = sub { defined $_[0] && !ref $_[0] && length $_[0] };
my $strings = sub {
	my ($value) = @_;
	return !grep { !$string->($_) } ref $value eq 'ARRAY' ? @{$value} : $value;
};
my $version = sub { $string->($_[0]) && $_[0] =~ $semver };
my $term = sub { $string->($_[0]) && $_[0] =~ m{^[^\s/\\]{2,}$} };
my $file = sub { $string->($_[0]) && -e "$top/$_[0]" };
my %phases = map { $_ => 1 } qw(configure runtime build test develop);
my %relations = map { $_ => 1 } qw(requires recommends suggests conflicts);

# What may be in a map, and what must (!).
my %extension = (
	'file!' => $file,
	'version!' => $version,
	abstract => $string,
	docfile => $file);
my %meta = (
	'name!' => $term,
	'version!' => $version,
	'abstract!' => $string,
	'maintainer!' => $strings,
	'license!' => sub { $_[0] eq 'postgresql' },
	'provides!' => sub {
		my ($map) = @_;
		return %{$map}
		  && !grep { !$term->($_) || wrong(\%extension, $map->{$_}) }
		  keys %{$map};
	},
	'meta-spec!' => sub {
		return !wrong({ 'version!' => sub { $_[0] eq '1.0.0' },
				url => $string }, $_[0]);
	},
	description => $string,
	generated_by => $string,
	release_status => sub { $_[0] =~ /^(stable|testing|unstable)$/ },
	tags => $strings,
	prereqs => sub {
		my ($map) = @_;
		for my $phase (keys %{$map})
		{
			return 0 if !$phases{$phase};
			for my $relation (keys %{ $map->{$phase} })
			{
				return 0 if !$relations{$relation};
				return 0 if grep { !$version->($_) }
				  values %{ $map->{$phase}{$relation} };
			}
		}
		return 1;
	});

# What is wrong with a map, as text.
sub wrong
{
	my ($rules, $map) = @_;
	my @wrong = map { /(.*)!$/ && !exists $map->{$1} ? "no $1" : () }
	  sort keys %{$rules};

	for my $key (sort keys %{$map})
	{
		my $rule = $rules->{$key} // $rules->{"$key!"};

		next if $key =~ /^x_/i;
		push @wrong, $rule ? "bad $key" : "unknown $key"
		  unless $rule && $rule->($map->{$key});
	}
	return join ', ', @wrong;
}

my $meta = decode_json(slurp_file("$top/META.json"));
is(wrong(\%meta, $meta), '', 'META.json');
isnt(wrong(\%meta, { %{$meta}, license => 'mine', tag => [] }),
	'', 'a wrong one would be seen');

my ($debian) = slurp_file("$top/debian/changelog") =~ /^tokenlock \((.*?)\)/;
is($debian, $meta->{version}, 'debian/changelog has this version');

my ($first, @packages) = split /\n\n/, slurp_file("$top/debian/control.in");
my $control = slurp_file("$top/debian/control");
my @majors = $control =~ /^Package: postgresql-(\d+)-tokenlock$/mg;
cmp_ok(scalar @majors, '>=', 1, 'debian/control has packages');
is( $control =~ s/\n+\z//r,
	join(
		"\n\n", $first,
		map { my $major = $_; map { s/PGVERSION/$major/gr =~ s/\n+\z//r }
			  @packages } @majors),
	'as control.in says');

done_testing();
