// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.Completion.FailedBlocks;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;

/// The worker half of [ChaosKv] on one rank. A load writes when it is due, not before, and until it
/// has ended it may write garbage.
final class ChaosKvWorker implements WorkerConnector {
    private static final byte GARBAGE = 0x5a;

    private final ChaosKv owner;
    private final int rank;
    private final Random random;
    private final Random foresight;
    private final Random ending;
    private Chaos chaos = Chaos.NONE;
    private List<KvRegion> regions = List.of();
    private final Map<TransferId, Load> loads = new LinkedHashMap<>();
    private final Map<TransferId, Long> ends = new LinkedHashMap<>();
    private final Set<TransferId> unanswered = new LinkedHashSet<>();
    private final Set<TransferId> ended = new HashSet<>();
    private final List<Completion> now = new ArrayList<>();
    private boolean closed;

    private record Load(int from, BlockHash[] hashes, int[] blocks, long due) {}

    ChaosKvWorker(ChaosKv owner, WorkerContext context, long seed) {
        this.owner = owner;
        this.rank = context.rank().rank();
        this.random = new Random(seed * 31 + rank);
        this.foresight = new Random(seed * 41 + rank);
        this.ending = new Random(seed * 47 + rank + owner.opened());
    }

    private void mayThrow(String where) {
        chaos.mayThrow(random, owner.name() + "." + where + " on rank " + rank);
    }

    @Override
    public void registerRegions(List<KvRegion> all) {
        regions = all;
    }

    @Override
    public void beginStep(WorkerStep step) {
        mayThrow("beginStep");
        for (var id : step.revoked()) {
            if (!ended.contains(id)) {
                unanswered.add(id);
            }
        }
        if (!step.plan().isEmpty()) {
            var in = step.plan().reader();
            chaos = Chaos.read(in);
            for (int n = in.i32(); n > 0; n--) {
                load(in, step.number());
            }
        }
        for (var id : List.copyOf(unanswered)) {
            if (random.nextDouble() >= chaos.silent()) {
                unanswered.remove(id);
                answerRevocation(id);
            }
        }
        for (var entry : List.copyOf(loads.entrySet())) {
            if (entry.getValue().due <= step.number()) {
                loads.remove(entry.getKey());
                execute(entry.getKey(), entry.getValue());
            }
        }
        for (var entry : List.copyOf(ends.entrySet())) {
            if (entry.getValue() <= step.number()) {
                ends.remove(entry.getKey());
                end(entry.getKey(), new Completion.Completed(0));
            }
        }
        if (owner.hangs()
                && chaos.throwing() > 0
                && !loads.isEmpty()
                && ending.nextInt(4) == 0) { // with something open, rather than at any time
            throw new IllegalStateException("injected into " + owner.name() + " while it loads");
        }
    }

    private void load(WireReader in, long step) {
        var id = TransferId.read(in);
        boolean sync = in.bool();
        int from = in.i32();
        int count = in.i32();
        var hashes = new BlockHash[count];
        var blocks = new int[count];
        for (int i = 0; i < count; i++) {
            hashes[i] = BlockHash.of(in.raw(BlockHash.BYTES), 0);
            blocks[i] = in.i32();
        }
        if (ended.contains(id) || unanswered.contains(id)) {
            return; // revoked before its plan
        }
        long due =
                sync
                        ? step
                        : random.nextDouble() < chaos.never()
                                ? Long.MAX_VALUE
                                : step + random.nextInt(chaos.late() + 1);
        loads.put(id, new Load(from, hashes, blocks, due));
    }

    /// Until now the load may have written anything.
    private void answerRevocation(TransferId id) {
        var load = loads.remove(id);
        if (load != null) {
            for (int block : load.blocks) {
                garbage(block);
            }
        }
        ends.remove(id);
        end(id, new Completion.Revoked());
    }

    private void execute(TransferId id, Load load) {
        int first = load.hashes.length;
        boolean fails = random.nextDouble() < chaos.fail();
        int failing = fails ? random.nextInt(load.hashes.length) : load.hashes.length;
        for (int i = 0; i < load.hashes.length; i++) {
            if (i == failing || !copyIn(load.hashes[i], load.blocks[i])) {
                garbage(load.blocks[i]);
                first = Math.min(first, i);
            }
        }
        if (first == load.hashes.length) {
            end(id, new Completion.Completed(first));
            return;
        }
        var failed = new ArrayList<Integer>();
        for (int i = first; i < load.hashes.length; i++) {
            failed.add(load.from + i);
            garbage(load.blocks[i]);
        }
        end(
                id,
                new Completion.Failed(
                        new Failure(ErrorCode.STORAGE_IO, "injected failure"),
                        switch (random.nextInt(8)) {
                            case 0 -> List.of(); // all of them
                            case 1 -> // names a group that there is not: fails as a whole
                                    List.of(new FailedBlocks(7, new int[] {0}));
                            default ->
                                    List.of(
                                            new FailedBlocks(
                                                    0,
                                                    failed.stream()
                                                            .mapToInt(Integer::intValue)
                                                            .toArray()));
                        }));
    }

    private void end(TransferId id, Completion.Result result) {
        ended.add(id);
        var completion = new Completion(id, rank, result);
        now.add(completion);
        if (random.nextDouble() < chaos.twice()) {
            now.add(completion);
        }
        if (id.direction() == TransferId.Direction.LOAD
                && random.nextDouble() < chaos.twice() / 2) {
            // a load that nobody has asked for yet: to be dropped, not to be kept for later
            var next =
                    new TransferId(
                            id.subject(), id.attempt() + 1, id.direction(), id.job(), id.child());
            now.add(new Completion(next, rank, new Completion.Completed(0)));
        }
        if (id.direction() == TransferId.Direction.LOAD) {
            foresee(id);
        }
    }

    /// Now and then reports the end of a load that it was not given, and may be given later.
    private void foresee(TransferId id) {
        if (owner.foresees()
                && foresight.nextDouble() < Math.max(owner.foresight(), chaos.twice() / 2)) {
            var next = owner.foreseen(id, foresight);
            if (!loads.containsKey(next) && !unanswered.contains(next) && !ended.contains(next)) {
                now.add(new Completion(next, rank, new Completion.Completed(0)));
            }
        }
    }

    private boolean copyIn(BlockHash hash, int block) {
        for (var region : regions) {
            var bytes = owner.store.get(ChaosKv.key(hash, region.layerIndex(), rank));
            if (bytes == null) {
                return false;
            }
            var target = region.block(block);
            MemorySegment.copy(bytes, 0, target, ValueLayout.JAVA_BYTE, 0, bytes.length);
        }
        return true;
    }

    private void garbage(int block) {
        for (var region : regions) {
            region.block(block).fill(GARBAGE);
        }
    }

    @Override
    public void endStep(WorkerStep step, Set<String> notComputed) {
        mayThrow("endStep");
        if (step.plan().isEmpty()) {
            return;
        }
        var in = step.plan().reader();
        Chaos.read(in);
        for (int n = in.i32(); n > 0; n--) {
            TransferId.read(in);
            in.bool();
            in.i32();
            in.raw(in.i32() * (BlockHash.BYTES + 4));
        }
        for (int n = in.i32(); n > 0; n--) {
            boolean computed = !notComputed.contains(in.string());
            var hash = BlockHash.of(in.raw(BlockHash.BYTES), 0);
            int block = in.i32();
            if (computed) {
                for (var region : regions) {
                    owner.store.put(
                            ChaosKv.key(hash, region.layerIndex(), rank),
                            region.block(block).toArray(ValueLayout.JAVA_BYTE));
                }
            }
        }
        for (int n = in.i32(); n > 0; n--) {
            var id = TransferId.read(in);
            if (!ended.contains(id) && random.nextDouble() >= chaos.never()) {
                ends.put(id, step.number() + 1 + random.nextInt(chaos.late() + 1));
            }
        }
        in.end();
    }

    @Override
    public StepReport report(WorkerStep step) {
        mayThrow("report");
        loads.keySet().forEach(this::foresee);
        var report =
                new StepReport(rank, step.number(), now, Payload.EMPTY, Stats.EMPTY, List.of());
        now.clear();
        return report;
    }

    @Override
    public void close() {
        if (!closed) {
            closed = true;
            if (owner.hangs() && ending.nextInt(2) == 0) {
                hang();
            }
            loads.clear();
        }
    }

    /// Until this has returned its threads may write to the blocks of what it has open.
    private void hang() {
        var limit =
                Deadline.in(
                        ending.nextBoolean()
                                ? Duration.ofMillis(1 + ending.nextInt(20))
                                : Duration.ofMillis(300));
        var most = Deadline.in(Duration.ofMillis(20));
        while (!limit.passed() && !(owner.answers() && most.passed())) {
            LockSupport.parkNanos(200_000);
        }
        for (var load : loads.values()) {
            for (int block : load.blocks) {
                garbage(block);
            }
        }
    }
}
