// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreContract;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStore;
import io.kvferry.backend.mooncake.store.embedded.PutSessions.Started;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.te.WriteGrant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;

/// Puts whose grant cannot be closed: their writer may still touch the memory.
class OwnerSessionTest {
    private static final long SIZE = 4096;

    /// A grant that a process of this host holds up, which was stopped in the middle of a copy.
    private static final class HeldGrant implements WriteGrant {
        private boolean held = true;

        @Override
        public long token() {
            return 1;
        }

        @Override
        public void close() {
            if (held) {
                throw new KvFerryException(ErrorCode.TIMEOUT, "a copy was stopped in the middle");
            }
        }
    }

    /// The session is closed while the owner ends the batch, or before it has begun.
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aPutThatMeetsTheEndOfItsSessionKeepsNoMemory(boolean begun) {
        var config = StoreOwner.fenced(StoreConfig.DEFAULT);
        try (var store = EmbeddedStore.open(config)) {
            store.mount("a", SIZE);
            var session = new OwnerSession(1, store.client(StoreContract.ONE));
            var started = new @Nullable Started[1];
            var results = new int[1];
            session.client.putStart(
                    List.of("k"),
                    new long[] {SIZE},
                    List.of(),
                    PutOptions.DEFAULT,
                    started,
                    results);
            var closing = new ClosingGrant(session);
            var batch =
                    new OwnerSession.OpenPuts(
                            started, results, closing, Deadline.in(Duration.ofMinutes(1)));
            if (begun) {
                session.add(1, batch);
                session.end(1, true, new int[] {0});
            } else {
                assertThat(session.close()).isTrue();
                session.add(1, batch);
            }
            assertThat(store.usedBytes()).isZero();
        }
    }

    /// A grant in whose closing the user leaves.
    private record ClosingGrant(OwnerSession session) implements WriteGrant {
        @Override
        public long token() {
            return 1;
        }

        @Override
        public void close() {
            session.close();
        }
    }

    @Test
    void memoryIsNotUsedAgainWhileAWriterMayTouchIt() {
        var nanos = new AtomicLong();
        var config = StoreOwner.fenced(StoreConfig.DEFAULT).steppedBy(nanos::get);
        try (var store = EmbeddedStore.open(config)) {
            store.mount("a", SIZE);
            var session = new OwnerSession(1, store.client(StoreContract.ONE));
            var started = new @Nullable Started[1];
            var results = new int[1];
            session.client.putStart(
                    List.of("k"),
                    new long[] {SIZE},
                    List.of(),
                    PutOptions.DEFAULT,
                    started,
                    results);
            var grant = new HeldGrant();
            session.add(
                    1,
                    new OwnerSession.OpenPuts(started, results, grant, Deadline.in(Duration.ZERO)));
            session.revokeLate();
            nanos.addAndGet(Duration.ofHours(1).toNanos());
            store.tick();
            assertThat(store.usedBytes()).as("held").isEqualTo(SIZE);
            grant.held = false;
            session.revokeLate();
            assertThat(store.usedBytes()).as("over").isZero();
        }
    }
}
