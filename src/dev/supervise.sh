# Runs PostgreSQL on behalf of a process that may die at any moment, SIGKILL included.
#
# The owner holds the write end of the pipe that is our stdin and never writes to it: end of file
# means that the owner stopped or died, and only the kernel has to keep that promise. The server
# then gets a fast shutdown (SIGINT), after ten seconds an immediate one (SIGQUIT), after which the
# log recovers it at the next start.
#
# stdin: the owner's pipe. stdout: the locked lock file; we and every process of the server keep it
# open, so that the lock outlives the owner for as long as one of them lives. stderr: the log.
# $1: the directory to remove at the end. The rest: the server's command line.
set -u
scratch=$1
shift
exec 3<&0 4>&1 </dev/null >&2

"$@" 3<&- &
server=$!

(
    trap '' HUP INT
    read -r _ <&3
    kill -INT "$server"
    tenths=0
    while [ "$tenths" -lt 100 ]; do
        sleep 0.1 3<&- 4>&-
        tenths=$((tenths + 1))
    done
    kill -QUIT "$server"
) 2>/dev/null &
watcher=$!
exec 3<&-

# A signal interrupts `wait`, so it is repeated until the server is reaped.
trap 'kill -INT "$server" 2>/dev/null' HUP INT TERM
while :; do
    wait "$server"
    status=$?
    kill -0 "$server" 2>/dev/null || break
done

kill "$watcher" 2>/dev/null
rm -rf -- "$scratch"
exit "$status"
