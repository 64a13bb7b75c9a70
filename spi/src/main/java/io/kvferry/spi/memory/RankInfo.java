// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

/// Where a worker stands among the workers of its engine.
///
/// @param rank 0 to `worldSize - 1`, unique within the engine; `ppRank * tpSize + tpRank`
public record RankInfo(int rank, int worldSize, int tpRank, int tpSize, int ppRank, int ppSize) {
    /// The only worker of an engine.
    public static final RankInfo SINGLE = new RankInfo(0, 1, 0, 1, 0, 1);

    public RankInfo {
        if (tpSize < 1
                || ppSize < 1
                || worldSize != tpSize * ppSize
                || rank != ppRank * tpSize + tpRank
                || rank < 0
                || tpRank < 0
                || tpRank >= tpSize
                || ppRank < 0
                || ppRank >= ppSize) {
            throw new IllegalArgumentException(
                    "inconsistent ranks: rank "
                            + rank
                            + "/"
                            + worldSize
                            + ", tp "
                            + tpRank
                            + "/"
                            + tpSize
                            + ", pp "
                            + ppRank
                            + "/"
                            + ppSize);
        }
    }
}
