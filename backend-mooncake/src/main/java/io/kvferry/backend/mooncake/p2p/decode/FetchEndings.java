// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.decode;

import io.kvferry.backend.mooncake.p2p.common.MooncakePlan;
import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.observe.Stats;
import io.kvferry.toolkit.bounded.FairRoom;
import io.kvferry.toolkit.bounded.HeapPause;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.bounded.SerialLoop;
import io.kvferry.toolkit.zmtp.SideChannel;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;

/// The open loads of a decoder rank and their ends: a load is reported when nobody writes its
/// blocks any more, whatever ended it.
///
/// Threading: the decode loop; [#close] when that has ended.
final class FetchEndings implements AutoCloseable {
    private final SideChannel channel;
    private final SerialLoop loop;
    private final FetchRequests requests;
    private final EngineDirectory directory;
    private final MooncakeSettings settings;
    private final Outbox outbox;
    private final Fences fences = new Fences();
    private final LastBytes lastBytes;
    private final ExposedBlocks exposed = new ExposedBlocks();
    private final Map<TransferId, Fetch> open = new HashMap<>();

    /// One prefiller alone has as many loads as the option says, others find room beside it.
    private final FairRoom room;

    FetchEndings(
            SideChannel channel,
            SerialLoop loop,
            FetchRequests requests,
            EngineDirectory directory,
            MooncakeSettings settings,
            Outbox outbox) {
        this.channel = channel;
        this.loop = loop;
        this.requests = requests;
        this.directory = directory;
        this.settings = settings;
        this.outbox = outbox;
        this.lastBytes = new LastBytes(settings, outbox);
        this.room = new FairRoom(2 * settings.maxLoads(), 0);
    }

    /// Adds a load.
    ///
    /// @return false when there are too many, and nothing happened
    boolean add(Fetch fetch) {
        if (!room.take(fetch.source(), 0)) {
            return false;
        }
        boolean added = false;
        try {
            var before = open.put(fetch.pull().load(), fetch);
            added = true;
            if (before != null) {
                room.give(before.source(), 0);
            }
        } finally {
            if (!added && !open.containsValue(fetch)) { // else its end gives the room back
                room.give(fetch.source(), 0);
            }
        }
        return true;
    }

    /// The load must end: it is reported when nobody writes its blocks any more.
    void revoke(TransferId load) {
        var fetch = open.get(load);
        if (fetch == null) {
            outbox.complete(load, new Completion.Revoked());
            return;
        }
        fetch.revoke();
        fence(fetch);
    }

    /// Whether a prefiller without capabilities may still write blocks of this load, under one that
    /// ended early.
    boolean isExposed(Fetch fetch) {
        return exposed.anyOf(fetch.pull().blocks());
    }

    /// A worker reports its part of a load as done.
    void filledBy(Fetch fetch, String address) {
        fetch.heardOf(address, lastBytes.end(fetch));
    }

    /// A worker has said all that it says of the load, or is lost.
    void answered(Fetch fetch, String address) {
        fetch.outstanding().remove(address);
        settleIfDone(fetch);
    }

    /// Ends a pull before any worker was asked for it.
    void notBegun(MooncakePlan.Pull pull, Failure failure) {
        var fetch = open.get(pull.load());
        if (fetch != null) {
            lose(fetch, failure);
        } else if (!pull.release()) {
            failed(pull.load(), failure);
        }
    }

    /// The load fails, and nothing more is awaited from its workers. Where a worker without
    /// capabilities may have been asked, [Fetch#exposeAgain] has to be called before.
    void lose(Fetch fetch, Failure failure) {
        fetch.fail(failure);
        fetch.outstanding().clear();
        settleIfDone(fetch);
        if (!fetch.pull().release()) { // last: for lack of memory it is not counted
            outbox.count("mooncake_num_failed_recvs");
        }
    }

    /// Ends the permission to write, where there is one; otherwise the end of the workers' writes
    /// is awaited.
    void fence(Fetch fetch) {
        if (fetch.isFenced()) {
            finish(fetch);
            return;
        }
        if (fetch.window().isEmpty()) {
            if (fetch.outstanding().isEmpty()) {
                settleIfDone(fetch);
            }
            return;
        }
        closeWindow(fetch, fetch.window().get());
    }

    private void closeWindow(Fetch fetch, Runnable window) {
        Consumer<Optional<Failure>> closed = problem -> closed(fetch, problem);
        if (fetch.ended() || !fetch.fence()) {
            return;
        }
        boolean begun = false;
        try { // waits for a copy in progress, so not here
            fences.close(id(fetch), window, problem -> loop.post(closed, problem));
            begun = true;
        } finally {
            if (!begun) { // for lack of memory: to be called again
                fetch.unfence();
            }
        }
    }

    private void closed(Fetch fetch, Optional<Failure> problem) {
        for (int attempt = 1; ; attempt++) {
            try {
                problem.ifPresent(fetch::fail);
                lastBytes.closed(fetch);
                fetch.fenced();
                conclude(fetch);
                return;
            } catch (OutOfMemoryError e) {
                HeapPause.after(attempt, e);
            }
        }
    }

    private static String id(Fetch fetch) {
        return fetch.pull().load().toString();
    }

    private void settleIfDone(Fetch fetch) {
        for (int attempt = 1; ; attempt++) {
            try {
                settle(fetch);
                return;
            } catch (OutOfMemoryError e) {
                HeapPause.after(attempt, e);
            }
        }
    }

    private void settle(Fetch fetch) {
        if (!fetch.outstanding().isEmpty() || fetch.ended()) {
            return;
        }
        if (fetch.window().isEmpty()) {
            if (fetch.isCutShort() && fetch.isWritten()) {
                channel.after(fetch.writtenFor(), () -> loop.post(() -> settleIfDone(fetch)));
            } else {
                conclude(fetch);
            }
        } else if (lastBytes.toCome(fetch)) {
            channel.after(LastBytes.LOOK_AGAIN, () -> loop.post(() -> settleIfDone(fetch)));
        } else {
            closeWindow(fetch, fetch.window().get());
        }
    }

    /// Reports a load whose blocks nobody writes any more.
    private void conclude(Fetch fetch) {
        if (fetch.prefiller().isEmpty()
                || fetch.failure().isPresent()
                || fetch.revoked()
                || fetch.pull().release()
                || fetch.reads().isPresent()
                || requests.grants(fetch.prefiller().get())) {
            finish(fetch);
        } else {
            directory.confirm(
                    fetch.engine(),
                    fetch.prefiller().get(),
                    failure -> {
                        failure.ifPresent(fetch::fail);
                        finish(fetch);
                    });
        }
    }

    private void finish(Fetch fetch) {
        if (!fetch.end()) {
            return;
        }
        try {
            fetch.runAfterwards();
        } finally { // whatever that throws, it has ended
            if (!fetch.pull().release()) {
                report(fetch);
            }
        }
    }

    private void report(Fetch fetch) {
        var id = fetch.pull().load();
        if (open.remove(id, fetch)) {
            room.give(fetch.source(), 0);
        }
        for (int attempt = 1; ; attempt++) {
            try {
                tell(id, fetch);
                return;
            } catch (OutOfMemoryError e) {
                HeapPause.after(attempt, e);
            }
        }
    }

    /// Called again where it threw for lack of memory.
    private void tell(TransferId id, Fetch fetch) {
        if (fetch.isWritten() && fetch.isCutShort()) {
            exposed.add(fetch);
        }
        if (fetch.failure().isPresent() && !fetch.revoked()) {
            failed(id, fetch.failure().get());
        } else if (fetch.revoked()) {
            outbox.complete(id, new Completion.Revoked());
        } else {
            outbox.complete(id, new Completion.Completed(fetch.pull().bytes()));
            outbox.record(Stats.counter("mooncake_num_recvs", 1));
        }
    }

    /// Reports a load that was not begun: too many are open.
    void refused(TransferId load) {
        outbox.count("mooncake_num_failed_recvs");
        failed(
                load,
                new Failure(
                        ErrorCode.BACKPRESSURE,
                        "too many loads are open already; one prefiller has "
                                + settings.maxLoads()
                                + " at most (option max_loads)"));
    }

    private void failed(TransferId load, Failure failure) {
        outbox.complete(load, new Completion.Failed(failure, List.of()));
    }

    @Override
    public void close() {
        fences.close();
        // A writer in the middle of a copy ends when the engine closes, which follows.
        open.values()
                .forEach(fetch ->
                        fetch.window()
                                .ifPresent(window -> fences.close(id(fetch), window, _ -> {})));
    }
}
