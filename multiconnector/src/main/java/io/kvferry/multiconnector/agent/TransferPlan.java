// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.Failure;
import io.kvferry.spi.transfer.BackendCapabilities.Route;
import io.kvferry.spi.transfer.Operation;

import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalDouble;

/// Why a transfer goes the way it goes.
///
/// @param peer the other agent, empty for a transfer within this one
/// @param candidates every backend of the agent, those that can do it first, in the order in which
///   they are tried
record TransferPlan(
        Operation operation,
        String peer,
        Route route,
        int descriptors,
        long bytes,
        List<Candidate> candidates) {
    TransferPlan {
        candidates = List.copyOf(candidates);
    }

    /// One backend.
    ///
    /// @param rejected why it cannot be used; empty if it can
    /// @param place where it was listed, from 0
    /// @param estimateNanos what it claims, or a guess when it claims nothing
    /// @param correction measured over estimated so far; empty before the first measurement
    /// @param healthy false while it is kept at the end after a failure
    record Candidate(
            String backend,
            Optional<Failure> rejected,
            int place,
            boolean healthy,
            long estimateNanos,
            OptionalDouble correction) {
        /// The cost it is ranked by, nanoseconds.
        long costNanos() {
            return Math.round(estimateNanos * correction.orElse(1));
        }
    }

    /// The backends that can do it, best first.
    List<Candidate> usable() {
        return candidates.stream().filter(one -> one.rejected().isEmpty()).toList();
    }

    /// The name of the backend that is tried first, empty if there is none.
    String chosen() {
        return usable().isEmpty() ? "" : usable().getFirst().backend();
    }

    /// For people: one line per backend.
    String text() {
        var text = new StringBuilder();
        text.append(operation)
                .append(' ')
                .append(route.local())
                .append(operation == Operation.READ ? " <- " : " -> ")
                .append(route.remote())
                .append(peer.isEmpty() ? " (this agent)" : " of " + peer)
                .append(", ")
                .append(descriptors)
                .append(" descriptors, ")
                .append(bytes)
                .append(" bytes\n");
        int place = 0;
        for (var one : candidates) {
            text.append("  ");
            if (one.rejected().isPresent()) {
                text.append("-  ")
                        .append(one.backend())
                        .append(": ")
                        .append(one.rejected().get().message());
            } else {
                text.append(++place)
                        .append(". ")
                        .append(one.backend())
                        .append(": ")
                        .append(cost(one));
            }
            text.append('\n');
        }
        return text.toString();
    }

    private static String cost(Candidate one) {
        var measured =
                one.correction().isPresent()
                        ? String.format(
                                Locale.ROOT,
                                " (estimate %d us x %.2f measured)",
                                one.estimateNanos() / 1000,
                                one.correction().getAsDouble())
                        : " (estimate, not measured yet)";
        return one.costNanos() / 1000
                + " us"
                + measured
                + ", listed as number "
                + (one.place() + 1)
                + (one.healthy() ? "" : ", failed lately");
    }
}
