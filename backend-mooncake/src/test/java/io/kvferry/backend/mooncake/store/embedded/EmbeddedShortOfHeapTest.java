// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.PutSessions.Started;
import io.kvferry.backend.mooncake.store.embedded.objects.ObjectTable;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.toolkit.memory.FullHeap;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;

/// Each call of the embedded store in a process whose heap has some bytes left, from none to
/// enough, so that allocations of the call fail one after the other. Whichever fails, no memory of
/// a segment is lost, and the books of the heap end at zero.
class EmbeddedShortOfHeapTest {
    @TempDir Path root;

    @ParameterizedTest
    @EnumSource(Call.class)
    void losesNoMemoryWhicheverAllocationFails(Call call) throws Exception {
        sweep(call, 112);
    }

    @Tag("soak")
    @ParameterizedTest
    @EnumSource(Call.class)
    void losesNoMemoryInSmallSteps(Call call) throws Exception {
        sweep(call, 16);
    }

    private void sweep(Call call, int step) throws Exception {
        int failures =
                FullHeap.runSweep(root, 12, Child.class, call.name(), Integer.toString(step));
        assertThat(failures > 0).as("a call failed").isEqualTo(call.allocates);
    }

    enum Call {
        PUT {
            @Override
            void work(Child child) {
                child.client.put(child.batch, PutOptions.DEFAULT, child.codes);
            }
        },
        PUT_INTO_A_FULL_SHARD {
            @Override
            void prepare(Child child) {
                child.renew();
                child.fillShard();
            }

            @Override
            void work(Child child) {
                child.client.put(child.batch, PutOptions.DEFAULT, child.codes);
            }
        },
        /// The table of groups grows.
        PUT_INTO_A_NEW_GROUP {
            @Override
            void prepare(Child child) {
                child.renew();
                child.fillGroups();
            }

            @Override
            void work(Child child) {
                child.client.put(child.batch, PutOptions.DEFAULT, child.codes);
            }
        },
        PUT_AGAIN {
            @Override
            void prepare(Child child) {
                child.starts();
                child.stepped.pass(StoreConfig.DEFAULT.putDiscard().plusSeconds(1));
            }

            @Override
            void work(Child child) {
                child.client.put(child.batch, PutOptions.DEFAULT, child.codes);
            }
        },
        GET {
            @Override
            void prepare(Child child) {
                child.puts();
            }

            @Override
            void work(Child child) {
                child.client.get(child.batch, child.read);
            }
        },
        REMOVE(false) {
            @Override
            void prepare(Child child) {
                child.puts();
            }

            @Override
            void work(Child child) {
                child.client.remove("k", true);
            }
        },
        REMOVE_ALL {
            @Override
            void prepare(Child child) {
                child.puts();
            }

            @Override
            void work(Child child) {
                child.client.removeAll(true);
            }
        },
        EVICT {
            @Override
            void prepare(Child child) {
                child.puts();
                child.stepped.store.wantHeap();
            }

            @Override
            void work(Child child) {
                child.stepped.store.tick();
            }

            @Override
            boolean isDone(Child child) {
                return child.stepped.store.keyCount() == 0;
            }
        },
        START {
            @Override
            void work(Child child) {
                child.starts();
            }
        },
        END(false) {
            @Override
            void prepare(Child child) {
                child.starts();
            }

            @Override
            void work(Child child) {
                child.client.putEnd("k", child.number(), 0);
            }
        },
        REVOKE(false) {
            @Override
            void prepare(Child child) {
                child.starts();
            }

            @Override
            void work(Child child) {
                child.client.putRevoke("k", child.number());
            }
        },
        DISCARD {
            @Override
            void prepare(Child child) {
                child.starts();
                child.stepped.pass(StoreConfig.DEFAULT.putDiscard().plusSeconds(1));
            }

            @Override
            void work(Child child) {
                child.stepped.store.tick();
            }
        },
        RELEASE {
            @Override
            void prepare(Child child) {
                child.starts();
                child.stepped.pass(StoreConfig.DEFAULT.putDiscard().plusSeconds(1));
                child.stepped.store.tick();
                child.stepped.pass(StoreConfig.DEFAULT.putRelease());
            }

            @Override
            void work(Child child) {
                child.stepped.store.tick();
            }
        },
        UNMOUNT {
            @Override
            void prepare(Child child) {
                child.renew();
                child.puts();
            }

            @Override
            void work(Child child) {
                child.stepped.store.unmount("segment");
            }

            @Override
            void check(Child child, int left) {
                child.stepped.store.unmount("segment"); // again, where it failed
                assertThat(child.segments).as("segments, %d bytes left", left).hasValue(0);
            }
        },
        PIN {
            @Override
            void prepare(Child child) {
                child.puts();
            }

            @Override
            void work(Child child) {
                child.client.pin(List.of("k")).close();
            }
        };

        final boolean allocates;

        Call() {
            this(true);
        }

        Call(boolean allocates) {
            this.allocates = allocates;
        }

        void prepare(Child child) {}

        abstract void work(Child child);

        void check(Child child, int left) {}

        /// Whether all of it was done where nothing was thrown.
        boolean isDone(Child child) {
            return true;
        }
    }

    static final class Child implements FullHeap.Trial {
        private static final StoreIdentity IDENTITY = new StoreIdentity("test", "model", "layout");
        private static final long BYTES = 5000;
        private static final int MOST = 64 << 10;

        private final Call call;
        private SteppedStore stepped;
        private EmbeddedClient client;
        private final StoreBatch batch = new StoreBatch();
        private final int[] codes = new int[1];

        /// Whose memory is taken.
        private final AtomicInteger segments = new AtomicInteger();

        private final long[] read = new long[1];
        private final MemorySegment value;
        private @Nullable Started[] started = new Started[1];
        private final List<String> keys = List.of("k");
        private final long[] sizes = {BYTES};

        Child(Call call, Arena arena) {
            this.call = call;
            this.value = arena.allocate(BYTES, 64);
            renew();
        }

        private SegmentMemory.Taken memory(long bytes) {
            var taken = SegmentMemory.PRIVATE.take(bytes);
            return new SegmentMemory.Taken(
                    taken.memory(),
                    () -> {
                        taken.free().run();
                        segments.decrementAndGet();
                    });
        }

        /// Another store, whose tables have not grown.
        void renew() {
            if (stepped != null) {
                stepped.close();
            }
            stepped = new SteppedStore();
            client = stepped.store.client(IDENTITY);
            segments.incrementAndGet();
            stepped.store.mount("segment", 1 << 20, this::memory);
            client.register(value);
            client.removals(); // from here on they are listed
        }

        public static void main(String[] args) {
            try (var arena = Arena.ofShared()) {
                var child = new Child(Call.valueOf(args[0]), arena);
                FullHeap.sweepAndExit(Integer.parseInt(args[1]), MOST, child);
            }
        }

        @Override
        public void prepare() {
            batch.clear().add("k", "group").buffer(value);
            started = new Started[1];
            call.prepare(this);
        }

        @Override
        public boolean work() {
            call.work(this);
            return call.isDone(this);
        }

        void puts() {
            client.put(batch, PutOptions.DEFAULT, codes);
            assertThat(codes[0]).isZero();
            stepped.pass(StoreConfig.DEFAULT.leaseTime().plusSeconds(1));
        }

        /// As many objects as a shard of the table takes before it grows, in the shard of the key
        /// that is put next.
        void fillShard() {
            int shard = shardOf("k");
            var others =
                    IntStream.iterate(0, i -> i + 1)
                            .mapToObj(i -> "other " + i)
                            .filter(key -> shardOf(key) == shard)
                            .limit(16)
                            .toList();
            var more = new StoreBatch();
            others.forEach(key -> more.add(key).buffer(value));
            client.put(more, PutOptions.DEFAULT, new int[16]);
            stepped.pass(StoreConfig.DEFAULT.leaseTime().plusSeconds(1));
        }

        /// As many groups as their table has before it grows.
        void fillGroups() {
            var more = new StoreBatch();
            for (int i = 0; i < 11; i++) {
                more.add("other " + i, "group " + i).buffer(value);
            }
            client.put(more, PutOptions.DEFAULT, new int[11]);
            stepped.pass(StoreConfig.DEFAULT.leaseTime().plusSeconds(1));
        }

        private static int shardOf(String key) {
            return ObjectTable.shardIndex(ObjectTable.hash(IDENTITY.hashCode(), key));
        }

        void starts() {
            client.putStart(keys, sizes, List.of(), PutOptions.DEFAULT, started, codes);
        }

        long number() {
            return Optional.ofNullable(started[0]).orElseThrow().number();
        }

        @Override
        public void check(int left) {
            stepped.pass(Duration.ofHours(1));
            stepped.store.tick();
            stepped.pass(Duration.ofHours(1));
            stepped.store.tick();
            client.removeAll(true);
            client.removals();
            assertThat(stepped.store.usedBytes()).as("used, %d bytes left", left).isZero();
            call.check(this, left);
            assertThat(stepped.store.keyCount()).as("objects, %d bytes left", left).isZero();
            assertThat(stepped.store.objects.heapBytes()).as("heap, %d bytes left", left).isZero();
        }
    }
}
