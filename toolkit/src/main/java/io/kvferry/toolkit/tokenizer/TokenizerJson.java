// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.tokenizer;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.files.FileTrouble;

import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.text.Normalizer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

/// What a Hugging Face `tokenizer.json` says, as far as byte-level BPE needs it. What would change
/// ids and is not understood here is refused by name, never skipped.
record TokenizerJson(
        Map<String, Integer> vocabulary,
        MergeTable merges,
        boolean ignoreMerges,
        OptionalInt unknown,
        boolean fuseUnknown,
        PreTokenizer preTokenizer,
        Optional<Normalizer.Form> normalizer,
        Map<String, Integer> addedTokens,
        Set<Integer> special,
        List<Integer> prefix,
        List<Integer> suffix) {

    static TokenizerJson read(Path file) {
        try {
            return new Reader(file).read(new JsonMapper().readTree(Files.readAllBytes(file)));
        } catch (NoSuchFileException e) {
            throw new KvFerryException(ErrorCode.NOT_FOUND, "the model folder has no " + file, e);
        } catch (IOException e) {
            throw FileTrouble.exception("cannot read " + file, e);
        } catch (JacksonException e) {
            throw new KvFerryException(
                    ErrorCode.CORRUPT, file + " is not valid JSON: " + e.getOriginalMessage(), e);
        }
    }

    private static final class Reader {
        private final Path file;
        private final Map<String, Integer> vocabulary = new HashMap<>();
        private final MergeTable merges = new MergeTable();
        private final Map<String, Integer> addedTokens = new LinkedHashMap<>();
        private final Set<Integer> special = new LinkedHashSet<>();
        private final List<Integer> prefix = new ArrayList<>();
        private final List<Integer> suffix = new ArrayList<>();
        private final List<Pattern> patterns = new ArrayList<>();
        private boolean byteLevel;
        private boolean prefixSpace;

        Reader(Path file) {
            this.file = file;
        }

        TokenizerJson read(JsonNode root) {
            JsonNode model = root.path("model");
            String type = model.path("type").asString("BPE");
            if (!type.equals("BPE") || model.path("byte_fallback").asBoolean(false)) {
                throw unsupported(
                        "model type " + type + (type.equals("BPE") ? " with byte_fallback" : ""));
            }
            model.path("vocab")
                    .properties()
                    .forEach(e -> vocabulary.put(e.getKey(), e.getValue().intValue()));
            root.path("added_tokens").forEach(this::readAddedToken);
            readPreTokenizer(root.path("pre_tokenizer"));
            if (!byteLevel) {
                throw unsupported("a pre-tokenizer without ByteLevel");
            }
            for (JsonNode merge : model.path("merges")) {
                readMerge(merge);
            }
            readPostProcessor(root.path("post_processor"));
            return new TokenizerJson(
                    Map.copyOf(vocabulary),
                    merges,
                    model.path("ignore_merges").asBoolean(false),
                    model.path("unk_token").isString()
                            ? OptionalInt.of(id(model.path("unk_token").asString()))
                            : OptionalInt.empty(),
                    model.path("fuse_unk").asBoolean(false),
                    new PreTokenizer(List.copyOf(patterns), prefixSpace),
                    readNormalizer(root.path("normalizer")),
                    Map.copyOf(addedTokens),
                    Set.copyOf(special),
                    List.copyOf(prefix),
                    List.copyOf(suffix));
        }

        private void readAddedToken(JsonNode token) {
            String content = token.path("content").asString("");
            if (content.isEmpty() || !token.path("id").isInt()) {
                throw corrupt("an added token lacks content or id");
            }
            if (token.path("lstrip").asBoolean(false) || token.path("rstrip").asBoolean(false)) {
                throw unsupported("added token '" + content + "' with lstrip or rstrip");
            }
            addedTokens.put(content, token.path("id").intValue());
            vocabulary.put(content, token.path("id").intValue());
            if (token.path("special").asBoolean(false)) {
                special.add(token.path("id").intValue());
            }
        }

        private void readMerge(JsonNode merge) {
            String[] pair =
                    merge.isArray()
                            ? new String[] {merge.path(0).asString(""), merge.path(1).asString("")}
                            : merge.asString("").split(" ", -1);
            if (pair.length != 2) {
                throw corrupt("merge '" + merge + "' is not a pair");
            }
            merges.add(id(pair[0]), id(pair[1]), id(pair[0] + pair[1]));
        }

        private int id(String token) {
            Integer id = vocabulary.get(token);
            if (id == null) {
                throw corrupt("token '" + token + "' is used but not in the vocabulary");
            }
            return id;
        }

        private void readPreTokenizer(JsonNode node) {
            String type = node.path("type").asString("none");
            switch (type) {
                case "Sequence" -> node.path("pretokenizers").forEach(this::readPreTokenizer);
                case "ByteLevel" -> {
                    byteLevel = true;
                    prefixSpace |= node.path("add_prefix_space").asBoolean(true);
                    if (node.path("use_regex").asBoolean(true)) {
                        patterns.add(PreTokenizer.GPT2);
                    }
                }
                case "Digits" ->
                        patterns.add(
                                node.path("individual_digits").asBoolean(false)
                                        ? PreTokenizer.SINGLE_DIGITS
                                        : PreTokenizer.DIGIT_RUNS);
                case "Split" -> patterns.add(readSplit(node));
                default -> throw unsupported("pre-tokenizer " + type);
            }
        }

        private Pattern readSplit(JsonNode node) {
            String behavior = node.path("behavior").asString("");
            JsonNode regex = node.path("pattern").path("Regex");
            if (!behavior.equals("Isolated")
                    || node.path("invert").asBoolean(false)
                    || !regex.isString()) {
                throw unsupported("Split pre-tokenizer that is not an isolating Regex");
            }
            try {
                return PreTokenizer.pattern(regex.asString());
            } catch (PatternSyntaxException e) {
                throw new KvFerryException(
                        ErrorCode.UNSUPPORTED, file + ": pattern not understood: " + e, e);
            }
        }

        private Optional<Normalizer.Form> readNormalizer(JsonNode node) {
            if (node.isMissingNode() || node.isNull()) {
                return Optional.empty();
            }
            String type = node.path("type").asString("");
            for (Normalizer.Form form : Normalizer.Form.values()) {
                if (form.name().equals(type)) {
                    return Optional.of(form);
                }
            }
            throw unsupported("normalizer " + type);
        }

        /// Special tokens that a template puts before and after a single text; other processors
        /// move offsets only.
        private void readPostProcessor(JsonNode node) {
            switch (node.path("type").asString("none")) {
                case "Sequence" -> node.path("processors").forEach(this::readPostProcessor);
                case "TemplateProcessing" -> {
                    List<Integer> side = prefix;
                    for (JsonNode item : node.path("single")) {
                        if (item.has("Sequence")) {
                            side = suffix;
                        } else {
                            side.add(id(item.path("SpecialToken").path("id").asString("")));
                        }
                    }
                }
                case "none", "ByteLevel" -> {
                    // nothing that changes ids
                }
                default -> throw unsupported("post-processor " + node.path("type"));
            }
        }

        private KvFerryException unsupported(String what) {
            return new KvFerryException(
                    ErrorCode.UNSUPPORTED,
                    file + ": " + what + " is not supported; byte-level BPE tokenizers are");
        }

        private KvFerryException corrupt(String what) {
            return new KvFerryException(ErrorCode.CORRUPT, file + ": " + what);
        }
    }
}
