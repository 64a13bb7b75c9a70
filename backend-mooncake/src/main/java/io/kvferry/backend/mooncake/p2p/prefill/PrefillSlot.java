// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.prefill;

import io.kvferry.backend.mooncake.p2p.wire.RequestBlocks;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.toolkit.bounded.GrowSafeQueue;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Queue;

/// Where the prefill of one transfer and the decoder workers that want it meet, whoever comes
/// first.
///
/// Threading: the prefill loop.
final class PrefillSlot {
    /// One request of one decoder worker.
    record Ask(PrefillExchange exchange, String request, RequestBlocks wanted) {}

    /// Requests for one transfer at most: one per worker of the decoder, some of them repeated.
    static final int MOST_ASKS = 1024;

    private final String transferId;
    private final GrowSafeQueue<Ask> waiting = new GrowSafeQueue<>();

    /// What became of each decoder worker, the last time that it asked.
    private final Map<String, Optional<Failure>> served = new LinkedHashMap<>();

    private final List<Runnable> inFlight = new ArrayList<>();
    private Optional<TransferId> hold = Optional.empty();
    private List<int[]> blocks = List.of();
    private boolean expected;
    private boolean revoked;
    private int asked;
    private int sending;
    private int needed = Integer.MAX_VALUE;
    private long bytes;

    PrefillSlot(String transferId) {
        this.transferId = transferId;
    }

    String transferId() {
        return transferId;
    }

    /// Counts one more request of a decoder worker.
    ///
    /// @return false when there have been more than any decoder has workers
    boolean admit() {
        return asked++ < MOST_ASKS;
    }

    /// Whether the scheduler half knows of it.
    boolean expected() {
        return expected;
    }

    void expect() {
        expected = true;
    }

    void ready(Optional<TransferId> id, List<int[]> held) {
        expected = true;
        hold = id;
        blocks = held;
    }

    boolean isReady() {
        return hold.isPresent();
    }

    Optional<TransferId> hold() {
        return hold;
    }

    List<int[]> blocks() {
        return blocks;
    }

    Queue<Ask> waiting() {
        return waiting;
    }

    /// Transfers that are under way; running one asks it to end.
    List<Runnable> inFlight() {
        return inFlight;
    }

    void revoke() {
        revoked = true;
    }

    boolean revoked() {
        return revoked;
    }

    void begin(Ask ask) {
        sending++;
        needed = ask.exchange().plan().exchanges();
    }

    /// A decoder worker has been dealt with.
    void end(Ask ask, long moved, Optional<Failure> problem) {
        sending--;
        served.put(ask.exchange().decoder(), problem);
        bytes += moved;
    }

    /// The decoder of a waiting request is gone: the request ends with `problem`, without a
    /// transfer.
    void abandon(Ask ask, Failure problem) {
        begin(ask);
        end(ask, 0, Optional.of(problem));
    }

    boolean idle() {
        return sending == 0;
    }

    /// Whether every decoder worker that shares the transfer has been dealt with.
    boolean done() {
        return idle() && served.size() >= needed;
    }

    long bytes() {
        return bytes;
    }

    Optional<Failure> failure() {
        return served.values().stream().flatMap(Optional::stream).findFirst();
    }
}
