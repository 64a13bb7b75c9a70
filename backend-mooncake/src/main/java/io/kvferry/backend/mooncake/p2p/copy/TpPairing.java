// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.copy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

/// Which tensor-parallel ranks of two engines exchange blocks, and which KV heads a rank holds.
/// Both sides compute it, so it follows vLLM's rules to the letter.
public final class TpPairing {
    private TpPairing() {}

    /// The consecutive ranks of the other side that `rank` exchanges with.
    public record Partners(int first, int count) {
        public boolean contains(int rank) {
            return rank >= first && rank < first + count;
        }
    }

    /// Heads `[first, first + count)`; `replicated` when other ranks hold the same.
    public record Heads(int first, int count, boolean replicated) {}

    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] when one size does not divide the other
    public static Partners partners(int rank, int size, int otherSize) {
        if (size >= otherSize) {
            return new Partners(rank / divide(size, otherSize), 1);
        }
        int ratio = divide(otherSize, size);
        return new Partners(rank * ratio, ratio);
    }

    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] when heads and ranks do not divide
    public static Heads heads(int rank, int size, int kvHeads) {
        if (size <= kvHeads) {
            int each = divide(kvHeads, size);
            return new Heads(rank * each, each, false);
        }
        return new Heads(rank / divide(size, kvHeads), 1, true);
    }

    private static int divide(int larger, int smaller) {
        if (larger % smaller != 0) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "tensor-parallel sizes and KV heads must divide each other, got "
                            + larger
                            + " and "
                            + smaller);
        }
        return larger / smaller;
    }
}
