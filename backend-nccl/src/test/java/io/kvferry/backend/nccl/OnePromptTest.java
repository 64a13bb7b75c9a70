// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.backend.nccl.wire.RequestAddresses;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.spi.observe.TraceEvent;
import io.kvferry.spi.transfer.TransferBackends;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/// Which request of an id is handed over with protocol 0, whose messages name neither prompt nor
/// engine request.
class OnePromptTest {
    private static final EngineInfo ENGINE =
            new EngineInfo(
                    "m",
                    new CacheNamespace("m", "r", DType.FLOAT16, KvLayout.LBNHC, 1, 16, 1, 1, ""),
                    new KvCacheSpec(
                            List.of(
                                    new KvCacheGroup(
                                            0,
                                            KvCacheGroup.Kind.FULL_ATTENTION,
                                            new KvFormat.Heads(DType.FLOAT16, KvLayout.LBNHC, 1, 8),
                                            List.of("l"),
                                            16,
                                            512)),
                            64),
                    1,
                    0,
                    1);

    /// A request of the engine under an id of a client.
    private record Asked(String id, String externalId, int seed, int promptIndex)
            implements RequestView {
        Asked(String id, String externalId, int seed) {
            this(id, externalId, seed, 0);
        }

        @Override
        public int tokenCount() {
            return 40;
        }

        @Override
        public int promptTokenCount() {
            return 40;
        }

        @Override
        public int token(int position) {
            return 100 * seed + position;
        }

        @Override
        public int blockHashCount() {
            return 2;
        }

        @Override
        public BlockHash blockHash(int block) {
            return new BlockHash(seed, block, 0, 0);
        }

        @Override
        public int computedTokenCount() {
            return 0;
        }

        @Override
        public TransferParams params() {
            return TransferParams.EMPTY;
        }

        @Override
        public String cacheSalt() {
            return "";
        }

        @Override
        public int attempt() {
            return 0;
        }
    }

    private final P2pNcclConnectorProvider provider = new P2pNcclConnectorProvider();

    /// Each opening reads the configuration anew, which draws another engine id.
    private int opened;

    private final List<TraceEvent.Incident> incidents = new ArrayList<>();
    private final String id =
            RequestAddresses.draw(
                            new PeerAddress("127.0.0.1", 9001), new PeerAddress("127.0.0.1", 9002))
                    .transferId();

    private SchedulerConnector scheduler(KvRole role) {
        var extra = Map.<String, Object>of("protocol", 0L, "send_type", "PUT_ASYNC");
        var config = ConnectorConfig.of(provider.name(), role, "e" + opened++, extra);
        var host =
                HostServices.of(
                        event -> {
                            if (event instanceof TraceEvent.Incident incident) {
                                incidents.add(incident);
                            }
                        },
                        TransferBackends.NONE,
                        StagingPool.NONE,
                        () -> {});
        return provider.openScheduler(
                new SchedulerContext(
                        "i", config, provider.options().read("test", extra), ENGINE, host));
    }

    private List<String> refused() {
        return incidents.stream().map(TraceEvent.Incident::requestId).toList();
    }

    private static void end(SchedulerConnector scheduler, RequestView request) {
        scheduler.finish(request, BlockTable.EMPTY, FinishReason.ABORT);
    }

    /// Two of them would put each layer twice, and cost each other the transfer.
    @ParameterizedTest
    @EnumSource(
            value = KvRole.class,
            names = {"PRODUCER", "CONSUMER"})
    void ofEqualPromptsOneRequestAtATimeIsHandedOver(KvRole role) {
        var scheduler = scheduler(role);
        var first = new Asked("1", id, 1);
        scheduler.onRequest(first);
        scheduler.onRequest(new Asked("2", id, 1));
        scheduler.onRequest(first); // again, as after the connector was off
        assertThat(refused()).containsExactly("2");
        end(scheduler, new Asked("2", id, 1));
        scheduler.onRequest(new Asked("3", id, 1));
        assertThat(refused())
                .as("the end of a refused one frees nothing")
                .containsExactly("2", "3");
        end(scheduler, first);
        scheduler.onRequest(new Asked("4", id, 1));
        assertThat(refused()).as("used again").containsExactly("2", "3");
        scheduler.close();
    }

    @Test
    void anotherPromptOfAnIdIsNotHandedOverEvenLater() {
        var scheduler = scheduler(KvRole.PRODUCER);
        var first = new Asked("1", id, 1);
        scheduler.onRequest(first);
        end(scheduler, first);
        scheduler.onRequest(new Asked("2", id, 2));
        assertThat(refused()).containsExactly("2");
        scheduler.onRequest(new Asked("3", "cmpl-" + id + "-1", 2));
        assertThat(refused()).as("counted, as vLLM does").containsExactly("2");
        scheduler.close();
    }

    /// Tensors of the first prompt may lie in the worker half, or still come.
    @ParameterizedTest
    @EnumSource(
            value = KvRole.class,
            names = {"PRODUCER", "CONSUMER"})
    void aHalfThatIsOpenedAgainKnowsWhichPromptAnIdHad(KvRole role) {
        var failed = scheduler(role);
        failed.onRequest(new Asked("1", id, 1));
        failed.close();
        var again = scheduler(role);
        again.onRequest(new Asked("1", id, 1));
        assertThat(refused()).isEmpty();
        end(again, new Asked("1", id, 1));
        again.onRequest(new Asked("2", id, 2));
        assertThat(refused()).containsExactly("2");
        again.close();
    }

    @Test
    void eachPromptOfACallIsHandedOver() {
        var scheduler = scheduler(KvRole.PRODUCER);
        scheduler.onRequest(new Asked("1", id, 1, 0));
        scheduler.onRequest(new Asked("2", id, 2, 1));
        scheduler.onRequest(new Asked("3", id, 3, 12));
        assertThat(refused()).isEmpty();
        scheduler.onRequest(new Asked("4", id, 2, 1));
        assertThat(refused()).as("another choice of the second prompt").containsExactly("4");
        scheduler.onRequest(new Asked("5", "cmpl-" + id + "-12", 4));
        assertThat(refused()).as("as vLLM counts them").containsExactly("4", "5");
        scheduler.close();
    }
}
