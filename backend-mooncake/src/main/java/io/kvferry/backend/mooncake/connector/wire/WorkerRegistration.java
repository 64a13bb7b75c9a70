// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.connector.wire;

import java.time.Duration;
import java.util.Objects;
import java.util.Optional;

/// What a prefiller rank tells the bootstrap service about itself.
///
/// @param addr `tcp://host:port` of its side channel
/// @param extra what kvferry workers add; absent for others
public record WorkerRegistration(
        String engineId, int dpRank, int tpRank, int ppRank, String addr, Optional<Extra> extra) {
    public WorkerRegistration {
        Objects.requireNonNull(engineId, "engineId");
        Objects.requireNonNull(addr, "addr");
        Objects.requireNonNull(extra, "extra");
        if (dpRank < 0 || tpRank < 0 || ppRank < 0) {
            throw new IllegalArgumentException(
                    "negative rank: dp " + dpRank + ", tp " + tpRank + ", pp " + ppRank);
        }
    }

    /// Lets the service tell a restart from a clash, and a complete engine from one that is still
    /// starting.
    ///
    /// @param incarnation differs for every start of the engine, equal on all its ranks
    /// @param grants whether its transfer engine writes with the capability that a decoder gives
    /// @param lease how long the registration lasts unless it is repeated
    public record Extra(
            String incarnation, int tpSize, int ppSize, boolean grants, Duration lease) {
        public Extra {
            Objects.requireNonNull(incarnation, "incarnation");
            if (tpSize < 1 || ppSize < 1 || lease.toMillis() < 1) {
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
