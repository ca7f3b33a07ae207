#!/bin/sh
# Installs the Debian packages that some integration tests use: a real SLURM, sshd, MPI, a browser, promtool;
# and Rust, which builds the compiled decoder.
# Without root or apt it says so and goes on; those tests are then skipped with the reason.
set -u
PACKAGES="slurm-wlm munge openssh-server openssh-client openmpi-bin iproute2 strace chromium gdb procps nftables jq libfaketime"

# other packages bring the same program, and two of them cannot be installed
command -v kubectl >/dev/null 2>&1 || PACKAGES="$PACKAGES kubernetes-client"

# promtool, which checks our metrics, alert rules and dashboard, comes with the server
command -v promtool >/dev/null 2>&1 || PACKAGES="$PACKAGES prometheus"

# a real Alertmanager takes our alerts
command -v prometheus-alertmanager >/dev/null 2>&1 || PACKAGES="$PACKAGES prometheus-alertmanager"

command -v cargo >/dev/null 2>&1 || PACKAGES="$PACKAGES cargo rustc"

command -v dpkg-query >/dev/null 2>&1 || { echo "no dpkg here: tests that need Debian packages are skipped"; exit 0; }
missing=""
for name in $PACKAGES; do
    dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q "ok installed" || missing="$missing $name"
done
[ -n "$missing" ] || exit 0
[ "$(id -u)" = 0 ] || { echo "not root: tests that need$missing are skipped"; exit 0; }
export DEBIAN_FRONTEND=noninteractive
apt-get update -q || { echo "apt-get update failed: tests that need$missing are skipped"; exit 0; }
# shellcheck disable=SC2086 - a list of words on purpose
apt-get install -y -q --no-install-recommends $missing || echo "apt-get install failed: tests that need$missing are skipped"
