// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.ServedEngine;
import io.kvferry.serving.TestSettings;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.TransferParams;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

import tools.jackson.databind.JsonNode;

import java.time.Duration;
import java.util.List;
import java.util.Optional;

/// The fields of a request that say how its texts become a prompt.
class TemplateFieldsTest {
    private static final String CHAT = "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]";

    private final ScriptedEngine engine =
            new ScriptedEngine(
                    handle -> handle.say("x").finish(FinishReason.LENGTH, TransferParams.EMPTY));
    private final HttpService http = new HttpService("test", TestClient.loopback());

    @BeforeEach
    void serve() {
        var trust = TransferTrust.of(Optional.empty(), List.of());
        OpenAiApi.install(engine.access(), http, Duration.ofSeconds(20), trust, http);
        http.start();
    }

    @AfterEach
    void stop() {
        http.close();
    }

    private String promptOf(String path, String body) throws Exception {
        var response = TestClient.post(http.port(), path, body);
        assertThat(response.statusCode()).as(response.body()).isEqualTo(200);
        if (!path.equals("/tokenize")) {
            return new ByteTokenizer().decode(engine.submitted.remove().request.prompt());
        }
        var ids = TestClient.json(response.body()).path("tokens");
        return new ByteTokenizer().decode(ids.valueStream().mapToInt(JsonNode::intValue).toArray());
    }

    @Test
    void reachTheTemplateOfAChat() throws Exception {
        for (var path : List.of("/v1/chat/completions", "/tokenize")) {
            assertThat(promptOf(path, CHAT + "}")).isEqualTo("user: hi");
            assertThat(promptOf(path, CHAT + ", \"add_generation_prompt\": false}"))
                    .contains("addGenerationPrompt=false, continueFinalMessage=false");
            assertThat(promptOf(path, CHAT + ", \"continue_final_message\": true}"))
                    .contains("addGenerationPrompt=false, continueFinalMessage=true");
            assertThat(promptOf(path, CHAT + ", \"add_special_tokens\": true}"))
                    .contains("addSpecialTokens=true");
            var kwargs = ", \"chat_template_kwargs\": {\"enable_thinking\": false}}";
            assertThat(promptOf(path, CHAT + kwargs)).contains("variables={enable_thinking=false}");
        }
        var documents = ", \"documents\": [{\"text\": \"b\"}]}";
        assertThat(promptOf("/v1/chat/completions", CHAT + documents))
                .contains("variables={documents=[{text=b}]}");
    }

    @Test
    void leaveSpecialTokensOutOfAPrompt() throws Exception {
        var body = "{\"prompt\": \"ab\", \"add_special_tokens\": false}";
        assertThat(promptOf("/v1/completions", body)).isEqualTo("-ab");
        assertThat(promptOf("/tokenize", body)).isEqualTo("-ab");
        assertThat(promptOf("/v1/completions", body.replace("false", "true"))).isEqualTo("ab");
    }

    @Test
    void areRefusedByNameWhereTheyMakeNoSense() throws Exception {
        for (var wrong :
                List.of(
                        "\"continue_final_message\": true, \"add_generation_prompt\": true",
                        "\"chat_template_kwargs\": []",
                        "\"chat_template_kwargs\": {\"chat_template\": \"x\"}",
                        "\"chat_template_kwargs\": {\"messages\": []}",
                        "\"documents\": {}",
                        "\"documents\": [1]",
                        "\"chat_template\": \"x\"")) {
            var body = CHAT + ", " + wrong + "}";
            var response = TestClient.post(http.port(), "/v1/chat/completions", body);
            assertThat(response.statusCode()).as(wrong).isEqualTo(400);
            assertThat(TestClient.json(response.body()).at("/error/param").asString())
                    .startsWith(wrong.split("\"", -1)[1]);
        }
        var body = "{\"prompt\": \"a\", \"continue_final_message\": true}";
        assertThat(TestClient.post(http.port(), "/v1/completions", body).body())
                .contains("continue_final_message is not supported here");
    }

    /// The synthetic model has no template.
    @Test
    void areRefusedByAModelWithoutATemplate() throws Exception {
        try (var served = new ServedEngine(TestSettings.synthetic().get())) {
            var body = CHAT + ", \"continue_final_message\": true}";
            var response = TestClient.post(served.port(), "/v1/chat/completions", body);
            assertThat(response.statusCode()).isEqualTo(400);
            assertThat(response.body()).contains("chat template of its own");
        }
    }
}
