// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.bootstrap;

import java.time.Duration;
import java.util.Objects;
import java.util.Optional;

/// The registration of a prefiller rank at the bootstrap service.
///
/// @param addr `tcp://host:port` of its side channel
/// @param extra keys that kvferry workers add; absent for others
public record WorkerRegistration(
        String engineId, int dpRank, int tpRank, int ppRank, String addr, Optional<Extra> extra) {
    static final int MAX_TEXT = 256;
    private static final int MAX_DP_RANK = 65_535;

    /// Of a tensor-parallel or pipeline-parallel group.
    private static final int MAX_SIZE = 1024;

    private static final Duration LONGEST_LEASE = Duration.ofHours(1);

    private static void text(String field, String value) {
        if (value.isEmpty() || value.length() > MAX_TEXT) {
            throw new IllegalArgumentException(
                    field + " has " + value.length() + " characters; allowed are 1 to " + MAX_TEXT);
        }
    }

    public WorkerRegistration {
        Objects.requireNonNull(engineId, "engineId");
        Objects.requireNonNull(addr, "addr");
        Objects.requireNonNull(extra, "extra");
        text("engine_id", engineId);
        text("addr", addr);
        if (dpRank < 0
                || dpRank > MAX_DP_RANK
                || tpRank < 0
                || ppRank < 0
                || tpRank >= extra.map(Extra::tpSize).orElse(MAX_SIZE)
                || ppRank >= extra.map(Extra::ppSize).orElse(MAX_SIZE)) {
            throw new IllegalArgumentException(
                    "rank out of range: dp "
                            + dpRank
                            + ", tp "
                            + tpRank
                            + extra.map(known -> " of " + known.tpSize()).orElse("")
                            + ", pp "
                            + ppRank
                            + extra.map(known -> " of " + known.ppSize()).orElse(""));
        }
    }

    /// Distinguishes a restart from a conflict, and a complete engine from one that is still
    /// starting.
    ///
    /// @param incarnation differs for every start of the engine, equal on all its ranks
    /// @param grants whether its transfer engine writes with the capability that a decoder gives
    /// @param lease how long the registration lasts unless it is renewed
    public record Extra(
            String incarnation, int tpSize, int ppSize, boolean grants, Duration lease) {
        public Extra {
            Objects.requireNonNull(incarnation, "incarnation");
            text("kvferry_incarnation", incarnation);
            if (tpSize < 1
                    || ppSize < 1
                    || tpSize > MAX_SIZE
                    || ppSize > MAX_SIZE
                    || lease.toMillis() < 1
                    || lease.compareTo(LONGEST_LEASE) > 0) {
                throw new IllegalArgumentException(
                        "bad registration: tp size "
                                + tpSize
                                + ", pp size "
                                + ppSize
                                + ", lease "
                                + lease);
            }
        }
    }
}
