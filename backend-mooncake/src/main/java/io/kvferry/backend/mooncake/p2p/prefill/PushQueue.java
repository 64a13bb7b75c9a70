// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.prefill;

import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.backend.mooncake.p2p.prefill.PrefillSlot.Ask;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.bounded.GrowSafeQueue;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.bounded.SerialLoop;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;

/// Limits the number of concurrent transfers to decoders and shares them fairly: the next transfer
/// goes to the waiting decoder that has the fewest.
///
/// A decoder may use the whole limit while no other waits. Once another waits, each gets at most
/// half, and what the first one uses beyond its half does not count against the others, so that a
/// stalled decoder does not block them. Hosts share the limit in the same way, whatever names their
/// decoders use. The number of transfers may therefore reach twice the limit for a while.
///
/// Every job ends, including one that could not start because memory ran out: a hold ends only
/// after all of its jobs.
///
/// Threading: the prefill loop; the carrier's callbacks come back through it.
final class PushQueue {
    private static final Logger LOG = LoggerFactory.getLogger(PushQueue.class);
    private static final long PAUSE_NANOS = 10_000_000;

    /// Preallocated, for when there is no memory to describe the failure.
    private static final Optional<Failure> NOT_BEGUN =
            Optional.of(
                    new Failure(
                            ErrorCode.INTERNAL, "the transfer could not be begun; see the log"));

    private final Carrier carrier;
    private final SerialLoop loop;
    private final MooncakeSettings settings;
    private final Outbox outbox;
    private final Ended ended;
    private final LinkedHashMap<String, Line> lines = new LinkedHashMap<>();
    private final Deque<Ranges> spareRanges = new ArrayDeque<>();
    private int running;

    private static final class Job {
        final PrefillSlot slot;
        final Ask ask;
        final Line line;
        boolean ended;

        Job(PrefillSlot slot, Ask ask, Line line) {
            this.slot = slot;
            this.ask = ask;
            this.line = line;
        }
    }

    /// The jobs for one decoder.
    private static final class Line {
        final String decoder;
        final String host;
        final GrowSafeQueue<Job> waiting = new GrowSafeQueue<>();
        int running;

        Line(String decoder, String host) {
            this.decoder = decoder;
            this.host = host;
        }
    }

    /// The decoders of one host together.
    private static final class Host {
        int running;

        /// Of these, without those that a decoder has beyond its half.
        int counted;

        boolean waits;
    }

    /// Called once for every job, when its blocks are no longer read.
    @FunctionalInterface
    interface Ended {
        void ended(PrefillSlot slot, Ask ask, long bytes, Optional<Failure> problem);
    }

    PushQueue(
            Carrier carrier,
            SerialLoop loop,
            MooncakeSettings settings,
            Outbox outbox,
            Ended ended) {
        this.carrier = carrier;
        this.loop = loop;
        this.settings = settings;
        this.outbox = outbox;
        this.ended = ended;
    }

    /// Throws nothing: the job ends with a failure instead.
    void add(PrefillSlot slot, Ask ask) {
        try {
            var line = line(ask);
            line.waiting.add(new Job(slot, ask, line));
        } catch (RuntimeException | Error e) {
            LoopReport.ERROR.log(LOG, "a transfer to a decoder could not be queued", e);
            tell(slot, ask, 0, NOT_BEGUN);
        }
        runJobs();
    }

    /// Decoders say themselves who they are, their hosts do not.
    private Line line(Ask ask) {
        var host = ask.exchange().host();
        return lines.computeIfAbsent(
                host + " " + ask.exchange().decoder(), name -> new Line(name, host));
    }

    /// Ends what has not begun.
    void withdraw(PrefillSlot slot, Failure why) {
        var problem = Optional.of(why);
        for (var line : lines.values()) {
            for (var jobs = line.waiting.iterator(); jobs.hasNext(); ) {
                var job = jobs.next();
                if (job.slot.equals(slot)) {
                    jobs.remove();
                    end(job, 0, problem); // at once: a job that is in no line must have ended
                }
            }
        }
        lines.values().removeIf(line -> line.running == 0 && line.waiting.isEmpty());
        runJobs(); // others may have more places now
    }

    private void runJobs() {
        try {
            for (var next = next(); next.isPresent(); next = next()) {
                run(next.get());
            }
        } catch (RuntimeException | Error e) { // who waits is looked at again
            LoopReport.ERROR.log(LOG, "the next transfer to a decoder was not looked for", e);
            if (running == 0) { // no end of one will have it done
                lookAgain();
            }
        }
    }

    private void lookAgain() {
        LockSupport.parkNanos(PAUSE_NANOS);
        try {
            loop.post(this::runJobs);
        } catch (OutOfMemoryError e) { // the next request has it done
            LoopReport.ERROR.log(LOG, "transfers to decoders wait for the next request", e);
        }
    }

    private void run(Job job) {
        try {
            begin(job);
        } catch (RuntimeException | Error e) { // want of memory must not keep the hold
            LoopReport.ERROR.log(LOG, "a transfer to a decoder could not be begun", e);
            end(job, 0, NOT_BEGUN);
        } finally {
            dropIfIdle(job.line);
        }
    }

    private void dropIfIdle(Line line) {
        if (line.running == 0 && line.waiting.isEmpty()) {
            lines.remove(line.decoder);
        }
    }

    private Optional<Job> next() {
        int half = Math.ceilDiv(settings.numWorkers(), 2);
        boolean shared =
                lines.values().stream().filter(line -> !line.waiting.isEmpty()).count() > 1;
        int most = shared ? half : settings.numWorkers();
        var hosts = hosts(half);
        boolean several = hosts.size() > 1;
        int mostOfHost =
                several && hosts.values().stream().filter(host -> host.waits).count() > 1
                        ? half
                        : Integer.MAX_VALUE;
        @Nullable String first = null;
        int fewest = most;
        int fewestOfHost = mostOfHost;
        for (var entry : lines.entrySet()) {
            var line = entry.getValue();
            int ofHost = several ? Objects.requireNonNull(hosts.get(line.host)).running : 0;
            if (!line.waiting.isEmpty()
                    && line.running < most
                    && (ofHost < fewestOfHost
                            || ofHost == fewestOfHost
                                    && ofHost < mostOfHost
                                    && line.running < fewest)) {
                first = entry.getKey();
                fewest = line.running;
                fewestOfHost = ofHost;
            }
        }
        if (first == null
                || running >= settings.numWorkers()
                        && (fewest >= half
                                || fewestOfHost >= half
                                || sharedOut(hosts, half) >= settings.numWorkers())) {
            return Optional.empty();
        }
        var line = Objects.requireNonNull(lines.get(first));
        lines.putLast(first, line); // where several have as few, they take turns
        var job = Optional.of(line.waiting.element()); // before it leaves: there may be no memory
        line.waiting.remove();
        return job;
    }

    private Map<String, Host> hosts(int half) {
        var hosts = new HashMap<String, Host>();
        for (var line : lines.values()) {
            var host = hosts.computeIfAbsent(line.host, _ -> new Host());
            host.running += line.running;
            host.counted += Math.min(line.running, half);
            host.waits |= !line.waiting.isEmpty();
        }
        return hosts;
    }

    /// Transfers that run, without those that a decoder, or a host beside others, has beyond its
    /// half.
    private static int sharedOut(Map<String, Host> hosts, int half) {
        int mostOfHost = hosts.size() > 1 ? half : Integer.MAX_VALUE;
        return hosts.values().stream().mapToInt(host -> Math.min(host.counted, mostOfHost)).sum();
    }

    private void begin(Job job) {
        if (job.ask.exchange().isGone()) {
            // The decoder no longer waits, and its port and addresses may belong to another
            // process.
            end(job, 0, Optional.of(gone(job.ask.exchange())));
            return;
        }
        var plan = job.ask.exchange().plan();
        var wanted = job.ask.wanted();
        if (wanted.releaseOnly()) {
            end(job, 0, Optional.empty());
            return;
        }
        var mismatch = plan.mismatch(job.slot.blocks(), wanted.groups());
        if (!mismatch.isEmpty()) {
            end(job, 0, Optional.of(new Failure(ErrorCode.INCOMPATIBLE, mismatch)));
            return;
        }
        Ranges ranges;
        try {
            ranges = spareRanges.isEmpty() ? new Ranges(256) : spareRanges.pop();
            plan.append(job.slot.blocks(), wanted.groups(), ranges);
        } catch (RuntimeException | Error e) { // want of memory, for one
            end(job, 0, failure(e));
            return;
        }
        if (ranges.size() == 0) { // no part in it: another rank of the same heads sends
            spareRanges.push(ranges);
            end(job, 0, Optional.empty());
            return;
        }
        submit(job, ranges);
    }

    private void submit(Job job, Ranges ranges) {
        long bytes = ranges.totalBytes();
        var going = new Going(job, ranges, bytes);
        job.slot.inFlight().add(going);
        running++;
        job.line.running++;
        try {
            going.stop = carrier.start(job.slot, job.ask, ranges, going.ended);
        } catch (RuntimeException | Error e) { // Errors too: the hold must not wait for ever
            // The ranges are not used again: part of it may have begun.
            var _ = leave(job, going, bytes, failure(e));
        }
    }

    private void again(Ranges ranges) {
        try {
            ranges.clear();
            spareRanges.push(ranges);
        } finally {
            runJobs();
        }
    }

    /// False when it had left before.
    private boolean leave(Job job, Going going, long bytes, Optional<Failure> problem) {
        if (!job.slot.inFlight().remove(going)) {
            return false;
        }
        running--;
        job.line.running--;
        dropIfIdle(job.line);
        if (problem.isPresent()) {
            countFailure();
        }
        end(job, problem.isEmpty() ? bytes : 0, problem);
        return true;
    }

    private void countFailure() {
        try {
            outbox.count("mooncake_num_failed_transfers");
        } catch (OutOfMemoryError e) { // the job must end in any case
            LoopReport.ERROR.log(LOG, "a failed transfer is not counted", e);
        }
    }

    private static Optional<Failure> failure(Throwable e) {
        try {
            return Optional.of(Failure.of(e));
        } catch (OutOfMemoryError _) {
            return NOT_BEGUN;
        }
    }

    /// A job on its way. What its end needs is made before it begins.
    private final class Going implements Runnable {
        private final Job job;
        private final Ranges ranges;
        private final long bytes;
        private final Runnable left = this::left;
        private final Consumer<Optional<Failure>> ended = this::ended;
        private volatile Optional<Failure> problem = Optional.empty();
        private Runnable stop = () -> {};

        Going(Job job, Ranges ranges, long bytes) {
            this.job = job;
            this.ranges = ranges;
            this.bytes = bytes;
        }

        private void ended(Optional<Failure> how) {
            problem = how;
            loop.post(left);
        }

        private void left() {
            if (leave(job, this, bytes, problem)) {
                again(ranges);
            }
        }

        @Override
        public void run() {
            stop.run();
        }
    }

    static Failure gone(PrefillExchange exchange) {
        return new Failure(
                ErrorCode.PEER_LOST, "decoder " + exchange.decoder() + " has gone since it asked");
    }

    private void end(Job job, long bytes, Optional<Failure> problem) {
        if (!job.ended) {
            job.ended = true;
            tell(job.slot, job.ask, bytes, problem);
        }
    }

    /// What this meets, an answer that cannot be sent for one, must not keep others waiting.
    private void tell(PrefillSlot slot, Ask ask, long bytes, Optional<Failure> problem) {
        try {
            ended.ended(slot, ask, bytes, problem);
        } catch (RuntimeException | Error e) {
            LoopReport.ERROR.log(LOG, "the end of a transfer to a decoder was not passed on", e);
        }
    }
}
