// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.tokenizer;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.model.FolderTokenizer;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.tokenizer.BpeTokenizer;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

import tools.jackson.databind.JsonNode;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;

/// The tokenizers and chat templates of real models, with the tokens that Hugging Face's own
/// library makes: through DJL, and through the built-in byte-level BPE where it reads the file.
@Tag("interop")
class RealTokenizersTest {
    private final List<String> differ = new ArrayList<>();

    @Test
    void makeTheTokensOfHuggingFace() throws IOException {
        var models = PublishedTokenizers.folder().resolve("models");
        try (var folders = Files.list(models)) {
            var all = folders.sorted().toList();
            assertThat(all).isNotEmpty();
            for (var folder : all) {
                compare(folder);
            }
        }
        assertThat(differ).isEmpty();
    }

    private void compare(Path folder) throws IOException {
        var expected = PublishedTokenizers.read(folder.resolve("expected.json"));
        var loaded = new HuggingFaceTokenizers().load(folder).orElseThrow();
        int before = differ.size();
        texts(folder, "DJL", loaded.tokenizer(), expected.path("texts"));
        var refusal = fallback(folder, expected.path("texts"));
        var template = JinjaChatTemplate.read(folder, () -> PublishedTokenizers.NOW);
        var bpe = refusal.isEmpty() ? BpeTokenizer.load(folder) : null;
        int[] chats = new int[2];
        for (var chat : expected.path("chats")) {
            boolean agreed = chat(folder, chat, loaded.tokenizer(), template.orElseThrow(), bpe);
            chats[agreed ? 0 : 1]++;
        }
        System.out.println(
                folder.getFileName()
                        + ": "
                        + expected.path("texts").size()
                        + " texts, built-in tokenizer: "
                        + refusal.orElse("the same")
                        + "; chats: "
                        + chats[0]
                        + " compared, "
                        + chats[1]
                        + " both refuse; "
                        + (differ.size() - before)
                        + " differ");
    }

    private void texts(Path folder, String which, Tokenizer tokenizer, JsonNode texts) {
        for (var each : texts) {
            var text = each.path("text").stringValue();
            int[] ids = tokenizer.encode(text);
            check(folder, which + " encodes " + text, ids, each.path("ids"));
            var decoded = tokenizer.decode(ids(each.path("ids")));
            if (!decoded.equals(each.path("decoded").stringValue())) {
                differ.add(folder.getFileName() + ": " + which + " decodes to " + decoded);
            }
        }
    }

    /// @return why the built-in tokenizer refuses the file; empty where it reads it
    private Optional<String> fallback(Path folder, JsonNode texts) {
        FolderTokenizer builtIn;
        try {
            builtIn = FolderTokenizer.builtIn(folder);
        } catch (KvFerryException e) {
            assertThat(e.code()).isEqualTo(ErrorCode.UNSUPPORTED);
            return Optional.of("refused, " + e.getMessage());
        }
        texts(folder, "built-in", builtIn, texts);
        return Optional.empty();
    }

    /// @param bpe the built-in tokenizer, where it reads the model
    /// @return false where both refuse
    private boolean chat(
            Path folder,
            JsonNode chat,
            Tokenizer djl,
            JinjaChatTemplate template,
            @Nullable BpeTokenizer bpe) {
        var what = "chat " + chat.path("name").stringValue();
        var messages = PublishedTokenizers.messages(chat.path("messages"));
        String text;
        try {
            text = template.render(messages);
        } catch (KvFerryException e) {
            if (!chat.path("text").isNull()) {
                differ.add(folder.getFileName() + ", " + what + ": " + e.getMessage());
            }
            return false;
        }
        if (!text.equals(chat.path("text").asString(""))) {
            differ.add(folder.getFileName() + ", " + what + ": " + text);
            return true;
        }
        if (chat.path("ids").isArray()) {
            check(folder, "DJL, " + what, djl.encodeChat(messages), chat.path("ids"));
            if (bpe != null) {
                check(folder, "built-in, " + what, bpe.encode(text, false), chat.path("ids"));
            }
        }
        return true;
    }

    private void check(Path folder, String what, int[] got, JsonNode expected) {
        if (!Arrays.equals(got, ids(expected))) {
            differ.add(folder.getFileName() + ": " + what + ": " + Arrays.toString(got));
        }
    }

    private static int[] ids(JsonNode array) {
        return array.valueStream().mapToInt(JsonNode::asInt).toArray();
    }
}
