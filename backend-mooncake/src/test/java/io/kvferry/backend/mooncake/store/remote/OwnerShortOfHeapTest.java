// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStore;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.toolkit.memory.FullHeap;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;

/// The beginning and the end of puts at an owner whose heap has some bytes left, from none to
/// enough, so that allocations fail one after the other. The owner reuses no memory of a put that
/// its session has not ended: whichever fails, the session ends it later.
class OwnerShortOfHeapTest {
    @TempDir Path root;

    @ParameterizedTest
    @ValueSource(strings = {"begin", "end", "give up"})
    void losesNoMemoryWhicheverAllocationFails(String call) throws Exception {
        sweep(call, 112);
    }

    @Tag("soak")
    @ParameterizedTest
    @ValueSource(strings = {"begin", "end", "give up"})
    void losesNoMemoryInSmallSteps(String call) throws Exception {
        sweep(call, 16);
    }

    private void sweep(String call, int step) throws Exception {
        int failures = FullHeap.runSweep(root, 16, Child.class, call, Integer.toString(step));
        assertThat(failures).as("calls that failed").isPositive();
    }

    static final class Child implements FullHeap.Trial {
        private static final int MOST = 64 << 10;
        private static final long BYTES = 5000;
        private static final int KEYS = 2;

        private final String call;
        private final AtomicLong nanos = new AtomicLong();
        private final EmbeddedStore store =
                EmbeddedStore.open(StoreOwner.fenced(StoreConfig.DEFAULT).steppedBy(nanos::get));
        private final OwnerCalls calls;
        private final OwnerSession session =
                new OwnerSession(1, store.client(new StoreIdentity("test", "model", "layout")));
        private long number;
        private WireReader question = new WireReader(new byte[0]);
        private WireWriter answer = new WireWriter();

        private Child(TransferEngine engine, String call) {
            this.call = call;
            this.calls = new OwnerCalls(engine, Duration.ZERO);
            store.mount("segment", 1 << 20, bytes -> StoreOwner.take(engine, bytes));
        }

        public static void main(String[] args) {
            var config = EngineConfig.from(Map.of("host", "127.0.0.1"));
            var child = new Child(JavaTransferEngine.start(config), args[0]);
            FullHeap.sweepAndExit(Integer.parseInt(args[1]), MOST, child);
        }

        @Override
        public void prepare() {
            number++;
            var start = new WireWriter().i64(number);
            StoreProtocol.write(start, PutOptions.DEFAULT);
            start.i32(KEYS);
            for (int i = 0; i < KEYS; i++) {
                start.string("k" + i).i64(BYTES).bool(true).string("group");
            }
            question = new WireReader(start.toByteArray());
            answer = new WireWriter();
            if (!call.equals("begin")) {
                calls.putStart(session, question, answer);
                question =
                        new WireReader(
                                new WireWriter()
                                        .i64(number)
                                        .bool(call.equals("end"))
                                        .ints(new int[KEYS])
                                        .toByteArray());
                answer = new WireWriter();
            }
        }

        @Override
        public boolean work() {
            if (call.equals("begin")) {
                calls.putStart(session, question, answer);
            } else {
                calls.putEnd(session, question, answer);
            }
            return true;
        }

        @Override
        public void check(int left) {
            session.revokeLate();
            assertThat(session.openPuts()).as("open puts, %d bytes left", left).isZero();
            session.client.removeAll(true);
            session.client.removals();
            assertThat(store.usedBytes()).as("used, %d bytes left", left).isZero();
            assertThat(store.keyCount()).as("objects, %d bytes left", left).isZero();
        }
    }
}
