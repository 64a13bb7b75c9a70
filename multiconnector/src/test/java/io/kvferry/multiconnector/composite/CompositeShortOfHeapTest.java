// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.toolkit.memory.FullHeap;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/// Runs each call of a composite of two children in a process with few heap bytes left, from none
/// to enough, so that its allocations fail one after the other. In every case the call throws,
/// which the engine handles, or the load and hold end; and no child continues with a transfer that
/// has ended for the engine.
class CompositeShortOfHeapTest {
    @TempDir Path root;

    /// Calls in which something was lost once.
    @ParameterizedTest
    @EnumSource(names = {"TAKE_A_LOAD", "HOLD"})
    void losesNothingWhicheverAllocationFails(Call call) throws Exception {
        sweep(call, 208);
    }

    @Tag("soak")
    @ParameterizedTest
    @EnumSource(Call.class)
    void losesNothingInSmallSteps(Call call) throws Exception {
        sweep(call, 48);
    }

    private void sweep(Call call, int step) throws Exception {
        int failed = FullHeap.runSweep(root, 32, Child.class, call.name(), Integer.toString(step));
        assertThat(failed).as("calls without enough memory").isPositive();
    }

    enum Call {
        TAKE_A_LOAD,
        PLAN,
        BEGIN,
        REPORT,
        SETTLE,
        SETTLE_A_FAILURE,
        REVOKE,
        HOLD,
        PLAN_A_HOLD
    }

    static final class Child implements FullHeap.Trial {
        private static final MergedReport NOTHING = new MergedReport(0, List.of(), List.of());
        private static final int MOST = 1 << 17;
        private static final int SLACK = 1 << 10;
        private static final int STEPS = 12;
        private static final int REVOKED_AFTER = 6;

        private final Call call;
        private final int step;
        private final Rig.Request request = new Rig.Request("r", 32);
        private final TransferId load = TransferId.load("r", 0);
        private final LoadAssignment assignment = new LoadAssignment(load, 0, 32, LoadMode.ASYNC);
        private final Patient first = new Patient("A", 0, 16);
        private final Patient second = new Patient("B", 16, 32);
        private final Rig rig =
                new Rig(
                        1,
                        Rig.multi("\"load_policy\": \"compose\",", "A", "B"),
                        first.provider,
                        second.provider);
        private SchedulerConnector scheduler = rig.scheduler;
        private WorkerConnector worker = rig.workers.getFirst();
        private @Nullable FinishDecision decision;
        private Payload plan = Payload.EMPTY;
        private List<TransferId> revoked = new ArrayList<>();
        private MergedReport report = NOTHING;
        private WorkerStep workerStep =
                new WorkerStep(0, plan, List.of(), false, Deadline.in(Duration.ZERO));
        private long number;
        private int left;
        private int enough;
        private long taken;
        private boolean threw;

        private Child(Call call, int step) {
            this.call = call;
            this.step = step;
        }

        public static void main(String[] args) {
            int step = Integer.parseInt(args[1]);
            var child = new Child(Call.valueOf(args[0]), step);
            child.measure();
            FullHeap.sweepAndExit(step, MOST, child);
        }

        private boolean isHold() {
            return call == Call.HOLD || call == Call.PLAN_A_HOLD;
        }

        // ---- the steps of an engine

        private void plans() {
            plan = scheduler.buildPlan(new NoRequests(++number));
        }

        private void begins() {
            var limit = Deadline.in(Duration.ofSeconds(5));
            workerStep = new WorkerStep(number, plan, List.copyOf(revoked), true, limit);
            worker.beginStep(workerStep);
            worker.endStep(workerStep, Set.of());
        }

        private void reports() {
            take(worker.report(workerStep));
        }

        /// One rank: what it completes is complete.
        private void take(StepReport ofRank) {
            revoked.clear();
            var completions = new ArrayList<Completion>();
            for (var each : ofRank.completions()) {
                completions.add(new Completion(each.id(), Completion.ALL_RANKS, each.result()));
            }
            report = new MergedReport(number, completions, List.of(ofRank));
        }

        private MergedReport settles() {
            return Rig.settle(scheduler, report);
        }

        private void finishes() {
            decision = scheduler.finish(request, request.blocks(), FinishReason.STOP);
        }

        private void revokes(TransferId id) {
            scheduler.onRevoked(id);
            revoked.add(id);
        }

        // ---- a trial

        @Override
        public void prepare() {
            left += step;
            number = 0;
            decision = null;
            revoked = new ArrayList<>();
            report = NOTHING;
            first.begins();
            second.begins();
            scheduler = rig.selected.openScheduler(rig.engine);
            worker = rig.selected.openWorker(rig.engine, new RankInfo(0, 1, 0, 1, 0, 1));
            worker.registerRegions(rig.regions);
            scheduler.onHandshakes(List.of(worker.handshake()));
            scheduler.onRequest(request);
            if (isHold()) {
                if (call == Call.PLAN_A_HOLD) {
                    finishes();
                }
            } else {
                var found = (LookupResult.Hit) scheduler.lookup(request, 0);
                assertThat(found.tokens()).isEqualTo(32);
                if (call != Call.TAKE_A_LOAD) {
                    scheduler.onAllocated(request, request.blocks(), assignment);
                }
            }
            if (call.compareTo(Call.PLAN) > 0 && !isHold()) {
                plans();
            }
            if (call.compareTo(Call.BEGIN) > 0 && !isHold()) {
                begins();
            }
            first.completes = call != Call.HOLD; // what the engine released nobody may hold
            second.completes = first.completes;
            first.fails = call == Call.SETTLE_A_FAILURE;
            if (call == Call.SETTLE || call == Call.SETTLE_A_FAILURE) {
                reports();
            }
            System.gc(); // else filling the heap may take a collection for every few bytes
        }

        @Override
        public boolean work() {
            threw = true;
            long before = allocated();
            switch (call) {
                case TAKE_A_LOAD -> scheduler.onAllocated(request, request.blocks(), assignment);
                case PLAN, PLAN_A_HOLD -> plans();
                case BEGIN -> begins();
                case REPORT -> reports();
                case SETTLE, SETTLE_A_FAILURE -> report = settles();
                case REVOKE -> scheduler.onRevoked(load);
                case HOLD -> finishes();
            }
            threw = false;
            taken = allocated() - before;
            return left > enough;
        }

        /// What the call takes once all classes are loaded.
        private void measure() {
            for (int i = 0; i < 3; i++) {
                prepare();
                var _ = work();
                check(0);
            }
            enough = (int) taken + SLACK;
            left = -2 * step; // the first of the sweep has memory for all
        }

        private static long allocated() {
            var threads = (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
            return threads.getCurrentThreadAllocatedBytes();
        }

        @Override
        public void check(int left) {
            boolean givenUp = threw && !isAnswered();
            if (!givenUp) {
                goOn(left);
            }
            scheduler.close();
            worker.close();
        }

        /// Else the engine closes all halves, and whatever is open has failed.
        private boolean isAnswered() {
            return switch (call) {
                case TAKE_A_LOAD, PLAN, REVOKE, HOLD, PLAN_A_HOLD -> true;
                case BEGIN, REPORT, SETTLE, SETTLE_A_FAILURE -> false;
            };
        }

        private void goOn(int left) {
            var id = isHold() ? holdId() : load;
            if (call == Call.REVOKE) {
                revoked.add(load);
            }
            if (threw && (call == Call.PLAN || call == Call.PLAN_A_HOLD)) {
                plan = Payload.EMPTY;
                revokes(id); // the engine does so with what the plan was to start
                endsStep();
            } else if (call == Call.PLAN || call == Call.PLAN_A_HOLD) {
                endsStep();
            } else if (call == Call.BEGIN) {
                reports();
                report = settles();
            } else if (call == Call.REPORT) {
                report = settles();
            } else if (threw && call == Call.TAKE_A_LOAD) {
                plans();
                endsStep();
                revokes(load);
            }
            if (threw && call == Call.HOLD) { // released: nobody may use the blocks
                wholeStep();
                assertNotWorkedOn(left);
                return;
            }
            for (int i = 0; i < STEPS && !hasEnded(id, left); i++) {
                if (i == REVOKED_AFTER) {
                    revokes(id);
                }
                wholeStep();
            }
            assertThat(hasEnded(id, left)).as("%s has ended, %d bytes left", id, left).isTrue();
        }

        private TransferId holdId() {
            return decision instanceof FinishDecision.Hold hold
                    ? hold.id()
                    : TransferId.save("r", 0);
        }

        private void wholeStep() {
            plans();
            endsStep();
        }

        private void endsStep() {
            begins();
            reports();
            report = settles();
        }

        private boolean hasEnded(TransferId id, int left) {
            boolean ended = report.completions().stream().anyMatch(each -> each.id().equals(id));
            if (ended) {
                assertNotWorkedOn(left);
            }
            return ended;
        }

        private void assertNotWorkedOn(int left) {
            assertThat(first.open).as("A works on, %d bytes left", left).isEmpty();
            assertThat(second.open).as("B works on, %d bytes left", left).isEmpty();
        }
    }

    private record NoRequests(long number) implements StepView {
        @Override
        public int scheduledCount() {
            return 0;
        }

        @Override
        public ScheduledRequest scheduled(int index) {
            throw new IndexOutOfBoundsException(index);
        }

        @Override
        public List<String> preempted() {
            return List.of();
        }
    }

    /// Has some tokens of every prompt, and holds every one; what it works on ends when it is told
    /// to.
    private static final class Patient {
        final KvConnectorProvider provider = new Provider();
        final Set<TransferId> open = new LinkedHashSet<>();
        volatile boolean completes;
        volatile boolean fails;
        private final String name;
        private final int from;
        private final int to;

        Patient(String name, int from, int to) {
            this.name = name;
            this.from = from;
            this.to = to;
        }

        void begins() {
            open.clear();
            completes = false;
            fails = false;
        }

        private final class Provider implements KvConnectorProvider {
            @Override
            public String name() {
                return name;
            }

            @Override
            public String description() {
                return "has tokens " + from + " to " + to;
            }

            @Override
            public SpiVersion.Range spiVersions() {
                return SpiVersion.Range.from(1, 0);
            }

            @Override
            public OptionSchema options() {
                return OptionSchema.NONE;
            }

            @Override
            public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
                return ConnectorCapabilities.of(Feature.ASYNC_LOAD, Feature.HOLD);
            }

            @Override
            public SchedulerConnector openScheduler(SchedulerContext context) {
                return new Scheduler();
            }

            @Override
            public WorkerConnector openWorker(WorkerContext context) {
                return new Worker();
            }
        }

        private final class Scheduler implements SchedulerConnector {
            private final List<TransferId> planned = new ArrayList<>();

            @Override
            public void onRequest(RequestView request) {}

            @Override
            public LookupResult lookup(RequestView request, int localTokens) {
                return localTokens >= from && localTokens < to
                        ? LookupResult.hit(to - localTokens, LoadMode.ASYNC, name, Tier.DISK)
                        : LookupResult.MISS;
            }

            @Override
            public void onAllocated(RequestView request, BlockTable blocks, LoadAssignment load) {
                if (!load.isEmpty()) {
                    planned.add(load.id());
                }
            }

            @Override
            public Payload buildPlan(StepView step) {
                if (planned.isEmpty()) {
                    return Payload.EMPTY;
                }
                var out = new WireWriter().i32(planned.size());
                planned.forEach(id -> id.write(out));
                var payload = out.toPayload(1);
                planned.clear();
                return payload;
            }

            @Override
            public FinishDecision finish(
                    RequestView request, BlockTable blocks, FinishReason reason) {
                var id = TransferId.save(request.id(), 0);
                var hold =
                        new FinishDecision.Hold(
                                id, Deadline.in(Duration.ofMinutes(1)), TransferParams.EMPTY);
                planned.add(id);
                return hold;
            }

            @Override
            public void close() {}
        }

        private final class Worker implements WorkerConnector {
            private final List<TransferId> gone = new ArrayList<>();

            @Override
            public void registerRegions(List<KvRegion> regions) {}

            @Override
            public void beginStep(WorkerStep step) {
                gone.addAll(step.revoked());
                if (!step.plan().isEmpty()) {
                    var in = step.plan().reader();
                    for (int n = in.count(1); n > 0; n--) {
                        open.add(TransferId.read(in));
                    }
                }
                gone.forEach(open::remove);
            }

            @Override
            public void endStep(WorkerStep step, Set<String> notComputed) {}

            @Override
            public StepReport report(WorkerStep step) {
                var told = new ArrayList<Completion>();
                for (var id : gone) {
                    told.add(new Completion(id, 0, new Completion.Revoked()));
                }
                if (completes) {
                    for (var id : open) {
                        told.add(new Completion(id, 0, outcome()));
                    }
                }
                var report =
                        new StepReport(
                                0, step.number(), told, Payload.EMPTY, Stats.EMPTY, List.of());
                gone.clear();
                if (completes) {
                    open.clear();
                }
                return report;
            }

            private Completion.Result outcome() {
                return fails
                        ? new Completion.Failed(
                                new Failure(ErrorCode.IO, "says the test"), List.of())
                        : new Completion.Completed(1);
            }

            @Override
            public void close() {
                open.clear();
            }
        }
    }
}
