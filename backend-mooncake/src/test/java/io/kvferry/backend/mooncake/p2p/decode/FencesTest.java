// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.decode;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.WriteGrant;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;

import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.IntFunction;

/// The end of a capability is reported in any case, even if closing it throws.
class FencesTest {
    /// A capability whose closing fails as the test says.
    private static final class Stubborn implements WriteGrant {
        private final IntFunction<Optional<Throwable>> failures;
        private int closings;

        Stubborn(IntFunction<Optional<Throwable>> failures) {
            this.failures = failures;
        }

        @Override
        public long token() {
            return 1;
        }

        @Override
        public void close() {
            switch (failures.apply(closings++).orElse(null)) {
                case null -> {}
                case Error e -> throw e;
                case RuntimeException e -> throw e;
                case Throwable e -> throw new AssertionError(e);
            }
        }
    }

    private static Optional<Failure> close(Fences fences, Stubborn grant) {
        var said = new CompletableFuture<Optional<Failure>>();
        fences.close("load", grant::close, said::complete);
        return said.orTimeout(60, TimeUnit.SECONDS).join();
    }

    private static KvFerryException stillCopied() {
        return new KvFerryException(ErrorCode.TIMEOUT, "a peer is stopped in the middle of a copy");
    }

    @Test
    void anErrorOnTheWayIsTriedAgain() {
        try (var fences = new Fences()) {
            var grant =
                    new Stubborn(
                            n -> n < 3 ? Optional.of(new InternalError("page")) : Optional.empty());
            assertThat(close(fences, grant)).isEmpty();
            assertThat(grant.closings).isEqualTo(4);
        }
    }

    @Test
    void withoutAThreadAWindowIsClosedAllTheSame() {
        try (var fences =
                new Fences(work -> {
                    throw new OutOfMemoryError("unable to create native thread, of " + work);
                })) {
            var grant = new Stubborn(_ -> Optional.empty());
            assertThat(close(fences, grant)).isEmpty();
            assertThat(grant.closings).isEqualTo(1);
        }
    }

    @Test
    void anErrorThatLastsIsReported() {
        try (var fences = new Fences()) {
            assertThat(close(fences, new Stubborn(_ -> Optional.of(new InternalError("page")))))
                    .hasValueSatisfying(failure -> assertThat(failure.message()).contains("page"));
        }
    }

    @Test
    void blocksUnderACopyAreNotHandedBackBeforeItEnds() {
        try (var fences = new Fences()) {
            var grant = new Stubborn(n -> n < 9 ? Optional.of(stillCopied()) : Optional.empty());
            assertThat(close(fences, grant)).isEmpty();
            assertThat(grant.closings).isEqualTo(10);
        }
    }

    @Test
    void closingEndsTheAttempts() {
        var fences = new Fences();
        fences.close();
        assertThat(close(fences, new Stubborn(_ -> Optional.of(stillCopied()))))
                .hasValueSatisfying(
                        failure -> assertThat(failure.code()).isEqualTo(ErrorCode.TIMEOUT));
    }
}
