// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreContract;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStore;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.remote.OwnerSession.OpenPuts;
import io.kvferry.backend.mooncake.te.WriteGrant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
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

    /// The batch ends as if nothing else had come, and the session can be closed then.
    @Test
    void aSessionIsNotClosedWhileABatchEnds() {
        var config = StoreOwner.fenced(StoreConfig.DEFAULT);
        try (var store = EmbeddedStore.open(config)) {
            store.mount("a", SIZE);
            var session = new OwnerSession(1, store.client(StoreContract.ONE));
            var closed = new ArrayList<Boolean>();
            begin(session, new ClosingGrant(session, closed), Duration.ofMinutes(1));
            assertThat(session.end(1, true, new int[] {0})).containsExactly(0);
            assertThat(closed).containsExactly(false);
            assertThat(session.client.removeAll(true)).as("objects").isEqualTo(1);
            assertThat(session.close()).isTrue();
            assertThat(store.usedBytes()).isZero();
        }
    }

    @Test
    void noBatchBeginsInASessionThatIsClosed() {
        try (var store = EmbeddedStore.open(StoreConfig.DEFAULT)) {
            var session = new OwnerSession(1, store.client(StoreContract.ONE));
            assertThat(session.close()).isTrue();
            assertThat(session.begin(1, 1, Deadline.in(Duration.ofMinutes(1)))).isNull();
        }
    }

    @Test
    void aBatchWhoseEndFailsIsGivenUpLater() {
        var config = StoreOwner.fenced(StoreConfig.DEFAULT);
        try (var store = EmbeddedStore.open(config)) {
            store.mount("a", SIZE);
            var session = new OwnerSession(1, store.client(StoreContract.ONE));
            begin(session, new FailingGrant(), Duration.ZERO);
            assertThatThrownBy(() -> session.end(1, true, new int[] {0}))
                    .isInstanceOf(OutOfMemoryError.class);
            assertThat(store.usedBytes()).as("while a writer may touch it").isEqualTo(SIZE);
            session.revokeLate();
            assertThat(store.usedBytes()).isZero();
            assertThat(session.close()).isTrue();
        }
    }

    private static void begin(OwnerSession session, WriteGrant grant, Duration limit) {
        OpenPuts batch = Objects.requireNonNull(session.begin(1, 1, Deadline.in(limit)));
        session.client.putStart(
                List.of("k"),
                new long[] {SIZE},
                List.of(),
                PutOptions.DEFAULT,
                batch.started(),
                batch.results());
        batch.permit(grant);
        session.begun(batch);
    }

    /// A grant for whose end there is no memory at first.
    private static final class FailingGrant implements WriteGrant {
        private boolean failed;

        @Override
        public long token() {
            return 1;
        }

        @Override
        public void close() {
            if (!failed) {
                failed = true;
                throw new OutOfMemoryError("a full heap");
            }
        }
    }

    /// A grant in whose closing the user leaves.
    private record ClosingGrant(OwnerSession session, List<Boolean> closed) implements WriteGrant {
        @Override
        public long token() {
            return 1;
        }

        @Override
        public void close() {
            closed.add(session.close());
        }
    }

    @Test
    void memoryIsNotUsedAgainWhileAWriterMayTouchIt() {
        var nanos = new AtomicLong();
        var config = StoreOwner.fenced(StoreConfig.DEFAULT).steppedBy(nanos::get);
        try (var store = EmbeddedStore.open(config)) {
            store.mount("a", SIZE);
            var session = new OwnerSession(1, store.client(StoreContract.ONE));
            var grant = new HeldGrant();
            begin(session, grant, Duration.ZERO);
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
