// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.store.cluster.ClusterConfig;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/// Which store the options, Mooncake's file and the environment name.
class StoreChoiceTest {
    @TempDir Path folder;

    private static StoreChoice choice(
            Map<String, Object> options, Map<String, String> environment) {
        return StoreChoice.of(StoreOptions.SCHEMA.read("test", options), environment);
    }

    private static Optional<String> address(
            Map<String, Object> options, Map<String, String> environment) {
        return choice(options, environment).remote().map(RemoteStoreConfig::address);
    }

    private Map<String, String> file(String json) throws IOException {
        var path = Files.writeString(folder.resolve("mooncake.json"), json);
        return Map.of("MOONCAKE_CONFIG_PATH", path.toString());
    }

    @Test
    void optionThenEnvironmentThenFileThenThisJvm() throws IOException {
        assertThat(address(Map.of(), Map.of())).isEmpty();
        var file =
                file(
                        "{\"mode\": \"standalone-store\", \"master_server_address\":"
                                + " \"10.0.0.1:50053\", \"global_segment_size\": 0, \"tenant_id\": \""
                                + " blue \"}");
        assertThat(address(Map.of(), file)).contains("10.0.0.1:50053");
        assertThat(choice(Map.of(), file).tenant()).isEqualTo("blue");
        assertThat(choice(Map.of("tenant_id", "red"), file).tenant()).isEqualTo("red");
        var both = new HashMap<>(file);
        both.put("MOONCAKE_MASTER", "10.0.0.2:50053");
        assertThat(address(Map.of(), both)).contains("10.0.0.2:50053");
        assertThat(address(Map.of(), Map.of("MOONCAKE_MASTER", "10.0.0.2:50053")))
                .contains("10.0.0.2:50053");
        assertThat(address(Map.of("store", "h:1"), both)).contains("h:1");
        assertThat(address(Map.of("store", "embedded"), both)).isEmpty();
    }

    @Test
    void aFileWithoutModeMeansThisJvm() throws IOException {
        var file = new HashMap<>(file("{\"master_server_address\": \"10.0.0.1:50051\"}"));
        assertThat(address(Map.of(), file)).isEmpty();
        file.put("MOONCAKE_MASTER", "10.0.0.2:50053");
        assertThat(address(Map.of(), file)).as("embedded is Mooncake's default").isEmpty();
        assertThat(choice(Map.of(), file).cluster()).isEmpty();
        var named = new HashMap<>(file("{\"mode\": \"embedded\"}"));
        named.put("MOONCAKE_MASTER", "10.0.0.2:50053");
        assertThat(address(Map.of(), named)).as("with a warning").isEmpty();
        assertThat(choice(Map.of(), named).cluster()).isEmpty();
        named.put("MOONCAKE_TE_META_DATA_SERVER", "P2PHANDSHAKE");
        assertThat(cluster(Map.of(), named).master()).isEqualTo("10.0.0.2:50053");
    }

    @Test
    void whatCannotBeMeantIsRefused() throws IOException {
        assertThatThrownBy(() -> choice(Map.of(), file("{\"mode\": \"real-client\"}")))
                .hasMessageContaining("mode real-client");
        assertThatThrownBy(() -> choice(Map.of(), file("{\"mode\": \"standalone-store\"}")))
                .hasMessageContaining("needs master_server_address");
        assertThatThrownBy(() -> choice(Map.of(), file("[]"))).hasMessageContaining("JSON object");
        assertThatThrownBy(() -> choice(Map.of(), file("{")))
                .hasMessageContaining("cannot be read");
        assertThatThrownBy(() -> choice(Map.of(), file("{\"tenant_id\": 5}")))
                .hasMessageContaining("tenant_id");
        assertThatThrownBy(() -> choice(Map.of(), Map.of("MOONCAKE_CONFIG_PATH", "/no/such/file")))
                .hasMessageContaining("/no/such/file");
        assertThatThrownBy(() -> choice(Map.of("store", "somewhere"), Map.of()))
                .hasMessageContaining("host:port");
    }

    @Test
    void theOwnAddressComesFromOptionOrEnvironment() {
        var environment =
                Map.of(
                        "MOONCAKE_MASTER",
                        "10.0.0.2:50053",
                        "MOONCAKE_REQUESTER_LOCAL_HOSTNAME",
                        " 10.0.0.9 ");
        assertThat(choice(Map.of(), environment).remote().orElseThrow().localHost())
                .contains("10.0.0.9");
        var options = Map.<String, Object>of("local_hostname", "10.0.0.8", "rpc_timeout", "2s");
        var remote = choice(options, environment).remote().orElseThrow();
        assertThat(remote.localHost()).contains("10.0.0.8");
        assertThat(remote.askLimit()).isEqualTo(Duration.ofSeconds(2));
    }

    private static ClusterConfig cluster(
            Map<String, Object> options, Map<String, String> environment) {
        var choice = choice(options, environment);
        assertThat(choice.remote()).isEmpty();
        return choice.cluster().orElseThrow();
    }

    @Test
    void aMasterWithAMetadataServerIsAMooncakeCluster() throws IOException {
        var file =
                file(
                        "{\"metadata_server\": \"http://10.0.0.1:8080/metadata\","
                                + " \"master_server_address\": \"10.0.0.1:50051\","
                                + " \"global_segment_size\": \"2gb\", \"local_buffer_size\": 4096,"
                                + " \"device_name\": \"mlx5_0\", \"tenant_id\": \"blue\"}");
        var embedded = cluster(Map.of(), file);
        assertThat(embedded.master()).isEqualTo("10.0.0.1:50051");
        assertThat(embedded.metadata()).isEqualTo("http://10.0.0.1:8080/metadata");
        assertThat(embedded.protocol()).as("vLLM's default").isEqualTo("rdma");
        assertThat(embedded.device()).isEqualTo("mlx5_0");
        assertThat(embedded.segmentBytes()).isEqualTo(2L << 30);
        assertThat(embedded.localBufferBytes()).isEqualTo(4096);
        assertThat(embedded.tenant()).isEqualTo("blue");
        var own = cluster(Map.of("mooncake_protocol", "tcp", "cluster_segment_size", 0), file);
        assertThat(own.protocol()).isEqualTo("tcp");
        assertThat(own.segmentBytes()).isZero();
        var standalone =
                file(
                        "{\"metadata_server\": \"P2PHANDSHAKE\", \"mode\": \"standalone-store\","
                                + " \"master_server_address\": \"10.0.0.1:50051\","
                                + " \"global_segment_size\": 0, \"protocol\": \"tcp\"}");
        assertThat(cluster(Map.of(), standalone).segmentBytes()).isZero();
        var owner = new HashMap<>(standalone);
        owner.put("MOONCAKE_MASTER", "127.0.0.1:50053");
        assertThat(address(Map.of(), owner))
                .as("run-with-owner goes before the file")
                .contains("127.0.0.1:50053");
        owner.put("MOONCAKE_TE_META_DATA_SERVER", "P2PHANDSHAKE");
        assertThat(cluster(Map.of(), owner).master()).isEqualTo("127.0.0.1:50053");
        assertThat(choice(Map.of("store", "embedded"), standalone).cluster()).isEmpty();
    }

    private static Optional<String> master(
            Map<String, Object> options, Map<String, String> environment) {
        var choice = choice(options, environment);
        assertThat(choice.remote()).isEmpty();
        assertThat(choice.cluster()).isEmpty();
        return choice.directory().map(RemoteStoreConfig::address);
    }

    @Test
    void aMasterWithItsSchemeIsOurs() throws IOException {
        String ours = "master://10.0.0.4:50051";
        assertThat(master(Map.of("store", ours), Map.of())).contains("10.0.0.4:50051");
        assertThat(master(Map.of(), Map.of("MOONCAKE_MASTER", ours))).contains("10.0.0.4:50051");
        var cluster =
                new HashMap<>(
                        file(
                                "{\"metadata_server\": \"P2PHANDSHAKE\","
                                        + " \"master_server_address\": \"10.0.0.1:50051\"}"));
        assertThat(cluster(Map.of(), cluster).master()).isEqualTo("10.0.0.1:50051");
        assertThat(master(Map.of("store", ours), cluster)).contains("10.0.0.4:50051");
        cluster.put("MOONCAKE_MASTER", ours);
        assertThat(master(Map.of(), cluster))
                .as("run-with-owner --master goes before the file")
                .contains("10.0.0.4:50051");
        cluster.put("MOONCAKE_TE_META_DATA_SERVER", "P2PHANDSHAKE");
        assertThat(master(Map.of(), cluster)).contains("10.0.0.4:50051");
        var file =
                file(
                        "{\"metadata_server\": \"P2PHANDSHAKE\", \"mode\":"
                                + " \"standalone-store\", \"global_segment_size\": 0,"
                                + " \"master_server_address\": \""
                                + ours
                                + "\"}");
        assertThat(master(Map.of(), file)).contains("10.0.0.4:50051");
        assertThatThrownBy(
                        () -> choice(Map.of("store", "mooncake"), Map.of("MOONCAKE_MASTER", ours)))
                .hasMessageContaining("address of the master");
        assertThatThrownBy(() -> choice(Map.of("store", "master://nowhere"), Map.of()))
                .hasMessageContaining("host:port");
    }

    @Test
    void theOptionNamesAClusterByItself() throws IOException {
        var named = cluster(Map.of("store", "mooncake://10.0.0.3:50051"), Map.of());
        assertThat(named.master()).isEqualTo("10.0.0.3:50051");
        assertThat(named.metadata()).isEqualTo("P2PHANDSHAKE");
        assertThat(named.protocol()).isEqualTo("tcp");
        assertThat(named.segmentBytes()).isZero();
        var file = file("{\"master_server_address\": \"10.0.0.1:50051\", \"mode\": \"embedded\"}");
        assertThat(cluster(Map.of("store", "mooncake"), file).segmentBytes()).isEqualTo(4L << 30);
        assertThatThrownBy(() -> choice(Map.of("store", "mooncake"), Map.of()))
                .hasMessageContaining("address of the master");
        assertThatThrownBy(() ->
                        choice(
                                Map.of("store", "mooncake"),
                                file(
                                        "{\"master_server_address\": \"h:1\", \"mode\":"
                                                + " \"standalone-store\","
                                                + " \"global_segment_size\": 1}")))
                .hasMessageContaining("global_segment_size 0");
    }
}
