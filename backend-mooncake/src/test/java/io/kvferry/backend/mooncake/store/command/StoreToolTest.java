// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.command;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.TypedCommand;
import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreContract;
import io.kvferry.backend.mooncake.store.master.OwnerMembership;
import io.kvferry.backend.mooncake.store.master.StandingMaster;
import io.kvferry.backend.mooncake.store.remote.RemoteStore;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.backend.mooncake.store.remote.StoreOwner;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.OptionValues;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.io.Writer;
import java.lang.foreign.Arena;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/// What the commands that look into a store see of several owners.
class StoreToolTest {
    private static final Duration LONG = Duration.ofSeconds(50);
    private static final PrintWriter SILENT = new PrintWriter(Writer.nullWriter());

    private static OptionValues options(String store) {
        return new StoreLsCommand().options().read("test", Map.of("store", store));
    }

    private static void put(StoreOwner owner, String key) {
        var patient =
                new RemoteStoreConfig(
                        owner.address(), Optional.empty(), Optional.empty(), false, LONG, LONG);
        try (var store = RemoteStore.open(patient, StoreContract.ONE, false);
                var arena = Arena.ofShared()) {
            await(() -> store.healthCheck() == 0);
            var results = new int[1];
            store.put(
                    new StoreBatch().add(key).buffer(arena.allocate(100 + key.length(), 64)),
                    PutOptions.DEFAULT,
                    results);
            assertThat(results[0]).as(key).isZero();
        }
    }

    private static void await(BooleanSupplier condition) {
        for (var limit = Deadline.in(LONG); !condition.getAsBoolean(); ) {
            assertThat(limit.passed()).as("not in time").isFalse();
            LockSupport.parkNanos(5_000_000);
        }
    }

    @Test
    @SuppressWarnings("try") // closed before its block ends
    void anOwnerThatIsAwayIsNamedAndSkipped() {
        var said = new StringWriter();
        try (var master = StandingMaster.start();
                var one = StoreOwner.start(StoreOwner.Settings.local(0, 1 << 20));
                var two = StoreOwner.start(StoreOwner.Settings.local(0, 1 << 20));
                var first = OwnerMembership.start(RemoteStoreConfig.of(master.address()), one);
                var second = OwnerMembership.start(RemoteStoreConfig.of(master.address()), two)) {
            await(() -> first.isListed() && second.isListed());
            put(one, "a");
            two.close();
            try (var looked =
                    StoreTool.open(
                            options("master://" + master.address()), new PrintWriter(said))) {
                assertThat(looked.list("", 10)).hasSize(1);
                assertThat(looked.find("a")).isPresent();
                assertThat(looked.away()).containsExactly(two.address());
            }
            assertThat(said.toString()).containsOnlyOnce("owner " + two.address() + " is skipped");
        }
    }

    @Test
    void anOwnerIsNotListedByAnAddressThatOthersCannotUse() {
        var far = RemoteStoreConfig.of("192.0.2.1:50051");
        for (String host : new String[] {"127.0.0.1", "0.0.0.0", "::"}) {
            assertThatThrownBy(() -> far.checkListed(host))
                    .isInstanceOf(KvFerryException.class)
                    .hasMessageContaining("set host");
        }
        far.checkListed("192.0.2.2");
        var near = RemoteStoreConfig.of("127.0.0.1:50051");
        near.checkListed("127.0.0.1");
        assertThatThrownBy(() -> near.checkListed("0.0.0.0")).hasMessageContaining("set host");
    }

    @Test
    void allOwnersOfAMasterAreLookedInto() {
        try (var master = StandingMaster.start();
                var one = StoreOwner.start(StoreOwner.Settings.local(0, 1 << 20));
                var two = StoreOwner.start(StoreOwner.Settings.local(0, 1 << 20));
                var first = OwnerMembership.start(RemoteStoreConfig.of(master.address()), one);
                var second = OwnerMembership.start(RemoteStoreConfig.of(master.address()), two)) {
            await(() -> first.isListed() && second.isListed());
            put(one, "a");
            put(two, "bb");
            put(one, "ccc");
            put(two, "ccc");
            try (var looked = StoreTool.open(options("master://" + master.address()), SILENT)) {
                assertThat(looked.list("", 10))
                        .extracting(placed -> placed.object().key())
                        .containsExactly("a", "bb", "ccc");
                assertThat(looked.list("", 2)).hasSize(2);
                assertThat(looked.list("b", 10)).hasSize(1);
                var found = looked.find("bb").orElseThrow();
                assertThat(found.owner().address()).isEqualTo(two.address());
                assertThat(found.object().bytes()).isEqualTo(102);
                assertThat(looked.find("b")).isEmpty();
            }
            try (var looked = StoreTool.open(options(one.address()), SILENT)) {
                assertThat(looked.find("a")).isPresent();
                assertThat(looked.find("bb")).isEmpty();
            }
            assertThatThrownBy(() -> StoreTool.open(options("master://" + one.address()), SILENT))
                    .isInstanceOf(KvFerryException.class)
                    .hasMessageContaining("does not answer");
        }
    }

    private static String printed(TypedCommand typed, int code) throws InterruptedException {
        assertThat(typed.run()).isEqualTo(code);
        return typed.printed().toString();
    }

    @Test
    void whatIsFoundIsPrintedInColumnsOrAsJsonLines(@TempDir Path folder)
            throws InterruptedException {
        try (var owner = StoreOwner.start(StoreOwner.Settings.local(0, 1 << 20))) {
            put(owner, "a");
            put(owner, "quoted \" key");
            var at = Map.<String, Object>of("store", owner.address());

            var ls = TypedCommand.of(new StoreLsCommand(), at);
            assertThat(printed(ls, 0).lines())
                    .containsExactly("101\tmemory\ta", "112\tmemory\tquoted \" key");
            assertThat(printed(ls.asJson(), 0).lines())
                    .containsExactly(
                            "{\"key\":\"a\",\"bytes\":101,\"tiers\":\"memory\"}",
                            "{\"key\":\"quoted \\\" key\",\"bytes\":112,\"tiers\":\"memory\"}");

            var exists = TypedCommand.of(new StoreExistsCommand(), at, "a", "b");
            assertThat(printed(exists, 1).lines()).containsExactly("1\ta", "0\tb");
            assertThat(printed(exists.asJson(), 1).lines())
                    .containsExactly(
                            "{\"key\":\"a\",\"exists\":true}", "{\"key\":\"b\",\"exists\":false}");

            var file = folder.resolve("a.bin");
            var get =
                    TypedCommand.of(
                            new StoreGetCommand(),
                            Map.of("store", owner.address(), "output", file.toString()),
                            "a");
            assertThat(printed(get.asJson(), 0).lines())
                    .containsExactly("{\"key\":\"a\",\"bytes\":101,\"file\":\"" + file + "\"}");
            assertThat(file).hasSize(101);
        }
    }
}
