// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.kv.ConnectorCapabilities.Feature;

import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.Optional;

/// Result of a lookup.
public sealed interface LookupResult {
    /// There is nothing to load.
    record Miss() implements LookupResult {}

    /// Not known yet; ask again. The engine limits how long it asks, then treats it as a miss.
    ///
    /// @param retryAfter the engine asks again after this time, or at its limit if that is earlier
    record Pending(Duration retryAfter) implements LookupResult {
        public Pending {
            if (retryAfter.isNegative()) {
                throw new IllegalArgumentException("retryAfter is negative: " + retryAfter);
            }
        }
    }

    /// `tokens` can be loaded right now.
    ///
    /// @param shares where they come from, in order; adds up to `tokens`
    record Hit(int tokens, LoadMode mode, List<Share> shares) implements LookupResult {
        public Hit {
            Objects.requireNonNull(mode, "mode");
            shares = List.copyOf(shares);
            if (tokens < 1 || shares.stream().mapToLong(Share::tokens).sum() != tokens) {
                throw new IllegalArgumentException(
                        "a hit of " + tokens + " tokens with shares " + shares);
            }
        }

        /// The defect in this answer to [SchedulerConnector#lookup]; empty when it is legal.
        ///
        /// @param blockTokens tokens after which a block of every group ends
        public Optional<String> defect(
                ConnectorCapabilities claimed,
                RequestView request,
                int localTokens,
                int blockTokens) {
            var unclaimed = unclaimed(claimed);
            if (unclaimed.isPresent()) {
                return unclaimed;
            }
            boolean sync = mode == LoadMode.SYNC;
            int most = request.tokenCount() - (sync ? 1 : 0);
            long sum = (long) localTokens + tokens;
            if (sum > most) {
                return Optional.of(
                        mode
                                + " hit of "
                                + tokens
                                + " tokens beyond "
                                + localTokens
                                + " local ones of "
                                + request.tokenCount()
                                + "; at most "
                                + most
                                + " in all");
            }
            if (sum % blockTokens != 0 && sum < request.tokenCount() - 1) {
                return Optional.of(
                        "hit up to token "
                                + sum
                                + ", which is neither the end of a block nor of the request");
            }
            return Optional.empty();
        }

        /// The defect in this answer to the lookup of an encoder item of so many rows; empty when
        /// it is legal.
        public Optional<String> defect(ConnectorCapabilities claimed, int rows) {
            var unclaimed = unclaimed(claimed);
            return unclaimed.isEmpty() && tokens != rows
                    ? Optional.of("hit of " + tokens + " rows for an item of " + rows)
                    : unclaimed;
        }

        private Optional<String> unclaimed(ConnectorCapabilities claimed) {
            var feature = mode == LoadMode.SYNC ? Feature.SYNC_LOAD : Feature.ASYNC_LOAD;
            return claimed.has(feature)
                    ? Optional.empty()
                    : Optional.of(mode + " hit, but the connector does not claim " + feature);
        }
    }

    /// Part of a hit: the connector instance that has it, and the tier it lies in.
    record Share(String source, Tier tier, int tokens) {
        public Share {
            Objects.requireNonNull(source, "source");
            Objects.requireNonNull(tier, "tier");
            if (tokens < 0) {
                throw new IllegalArgumentException(
                        "a share of " + tokens + " tokens from " + source);
            }
        }
    }

    /// Where cached data lies.
    enum Tier {
        DEVICE,
        HOST,
        PEER,
        DISK,
        OTHER
    }

    /// When the data is in place.
    enum LoadMode {
        /// Within the step that runs the request.
        SYNC,
        /// The request waits, without taking part in steps, until the load is reported.
        ASYNC
    }

    /// The only miss.
    LookupResult MISS = new Miss();

    /// A hit from one source.
    static LookupResult hit(int tokens, LoadMode mode, String source, Tier tier) {
        return new Hit(tokens, mode, List.of(new Share(source, tier, tokens)));
    }
}
