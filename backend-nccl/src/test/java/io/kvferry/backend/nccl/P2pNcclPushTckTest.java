// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.engines.P2pEngines;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.wire.Payload;
import io.kvferry.tck.kv.KvConnectorContract;
import io.kvferry.toolkit.staging.BuddyStagingPool;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInfo;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;

/// The connector contract where the prefiller knows the decoder: blocks are pushed by layers, into
/// the staging pool or straight into the blocks of a load that waits.
class P2pNcclPushTckTest extends KvConnectorContract {
    private static final long ROOM = 64 << 20;

    /// Where the ranks of each consumer of this test listen.
    private final Map<String, Map<Integer, String>> consumers = new ConcurrentHashMap<>();

    private final List<String> opened = new ArrayList<>();
    private BuddyStagingPool pool = new BuddyStagingPool(ROOM);

    String sendType() {
        return "PUT_ASYNC";
    }

    /// These are about holds, which a push leaves none of.
    private boolean decoderKnown = true;

    @BeforeEach
    void freshPool(TestInfo test) {
        decoderKnown = !test.getDisplayName().matches("E(29|34).*");
        pool.close();
        pool = new BuddyStagingPool(ROOM);
    }

    /// All engines are closed by now.
    @Override
    protected void releaseStore() {
        assertThat(pool.available()).as("free staging memory").isEqualTo(pool.capacity());
        pool.close();
    }

    @Override
    protected HostServices host() {
        return P2pEngines.host(pool);
    }

    /// The product's provider, which tells the test where consumers listen.
    @Override
    protected KvConnectorProvider provider() {
        return new Overheard();
    }

    @Override
    protected boolean standsAlone() {
        return false;
    }

    @Override
    protected Map<String, Object> options() {
        var options = new HashMap<String, Object>();
        options.put("listen_port", 0L);
        options.put("send_type", sendType());
        return options;
    }

    @Override
    protected KvRole producerRole() {
        return KvRole.PRODUCER;
    }

    @Override
    protected KvRole consumerRole() {
        return KvRole.CONSUMER;
    }

    /// To the consumer that was opened last.
    @Override
    protected TransferParams producerParams() {
        var params = super.producerParams();
        if (opened.isEmpty() || !decoderKnown) {
            return params;
        }
        var ranks = new TreeMap<>(consumers.getOrDefault(opened.getLast(), Map.of()));
        var values = new TreeMap<>(params.values());
        values.put("decode_addrs", List.copyOf(ranks.values()));
        return new TransferParams(values);
    }

    private final class Overheard extends AlteredP2p {
        @Override
        public WorkerConnector openWorker(WorkerContext context) {
            var worker = real.openWorker(context);
            return context.config().role().consumes() ? new Listening(worker, context) : worker;
        }
    }

    private final class Listening implements WorkerConnector {
        private final WorkerConnector real;
        private final WorkerContext context;

        Listening(WorkerConnector real, WorkerContext context) {
            this.real = real;
            this.context = context;
        }

        @Override
        public Payload handshake() {
            var handshake = real.handshake();
            var key = context.config().engineId() + "/" + context.engine().incarnation();
            consumers
                    .computeIfAbsent(key, _ -> new ConcurrentHashMap<>())
                    .put(context.rank().rank(), P2pWorker.readHandshake(handshake));
            opened.remove(key);
            opened.add(key);
            return handshake;
        }

        @Override
        public void registerRegions(List<KvRegion> regions) {
            real.registerRegions(regions);
        }

        @Override
        public void beginStep(WorkerStep step) {
            real.beginStep(step);
        }

        @Override
        public void endStep(WorkerStep step, Set<String> notComputed) {
            real.endStep(step, notComputed);
        }

        @Override
        public StepReport report(WorkerStep step) {
            return real.report(step);
        }

        @Override
        public void close() {
            real.close();
        }
    }
}
