# Runs a systemd --user in the foreground, in a mount namespace and a cgroup of
# its own, where the machine itself need not have been started by systemd.
set -e
manager=$1
if [ ! -d /run/systemd/system ]; then
	mount -t tmpfs tmpfs /run/systemd
	mkdir /run/systemd/system # what systemd takes for "booted with systemd"
fi
group=tmux-mcpd-test-$$
leave() {
	for root in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
		[ -d "$root/$group" ] || continue
		echo $$ >"$root/cgroup.procs"
		find "$root/$group" -depth -type d -exec rmdir {} + || true
	done
}
for root in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
	[ -f "$root/cgroup.procs" ] || continue
	mkdir "$root/$group"
	echo $$ >"$root/$group/cgroup.procs"
done
trap 'kill -TERM $child' TERM INT
"$manager" --user --log-target=console --unit=basic.target &
child=$!
while kill -0 $child 2>/dev/null; do wait $child || true; done
leave
