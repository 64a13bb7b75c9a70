// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import io.kvferry.toolkit.tokenizer.ByteAlphabet;

import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/// The tokenizer of the made model: one token per byte, so that a prompt of n ASCII characters is n
/// tokens and BOS.
///
/// Ids 0 to 255 are the bytes, then BOS and EOS. The rest are syllables, so that generated text
/// resembles words; without merges no prompt produces them. The vocabulary has no gaps, since some
/// engines reject them.
final class MakeTokenizer {
    static final int SIZE = 512;
    static final int BOS = 256;
    static final int EOS = 257;
    static final String BOS_TEXT = "<s>";
    static final String EOS_TEXT = "</s>";

    private static final String CONSONANTS = "bcdfghjklmnprstvwz";
    private static final String VOWELS = "aeiou";

    private MakeTokenizer() {}

    /// Whether generated text may hold the token: printable ASCII and syllables.
    static boolean readable(int id) {
        return id >= ' ' && id <= '~' || id > EOS;
    }

    static ObjectNode json() {
        ObjectNode json = JsonNodeFactory.instance.objectNode();
        json.put("version", "1.0").putNull("truncation").putNull("padding");
        var added = json.putArray("added_tokens");
        added.add(special(BOS, BOS_TEXT)).add(special(EOS, EOS_TEXT));
        json.putNull("normalizer");
        json.putObject("pre_tokenizer")
                .put("type", "Sequence")
                .putArray("pretokenizers")
                .add(byteLevel());
        json.set("post_processor", postProcessor());
        json.set("decoder", byteLevel());
        ObjectNode model = json.putObject("model");
        model.put("type", "BPE").putNull("dropout").putNull("unk_token");
        model.put("fuse_unk", false).put("byte_fallback", false).put("ignore_merges", false);
        ObjectNode vocabulary = model.putObject("vocab");
        int id = 0;
        for (; id < 256; id++) {
            vocabulary.put(String.valueOf(ByteAlphabet.charOf(id)), id);
        }
        vocabulary.put(BOS_TEXT, BOS).put(EOS_TEXT, EOS);
        id = EOS + 1;
        for (String syllable : syllables(SIZE - id)) {
            vocabulary.put(syllable, id++);
        }
        model.putArray("merges");
        return json;
    }

    /// `count` syllables: bare and at the start of a word first, then closed ones.
    private static Set<String> syllables(int count) {
        char space = ByteAlphabet.charOf(' ');
        var all = new LinkedHashSet<String>();
        for (String form : List.of("CV", space + "CV", space + "CVn", space + "VC")) {
            for (char c : CONSONANTS.toCharArray()) {
                for (char v : VOWELS.toCharArray()) {
                    if (all.size() < count) {
                        all.add(form.replace('C', c).replace('V', v));
                    }
                }
            }
        }
        return all;
    }

    private static ObjectNode special(int id, String text) {
        return JsonNodeFactory.instance
                .objectNode()
                .put("id", id)
                .put("content", text)
                .put("single_word", false)
                .put("lstrip", false)
                .put("rstrip", false)
                .put("normalized", false)
                .put("special", true);
    }

    private static ObjectNode byteLevel() {
        return JsonNodeFactory.instance
                .objectNode()
                .put("type", "ByteLevel")
                .put("add_prefix_space", false)
                .put("trim_offsets", true)
                .put("use_regex", true);
    }

    /// BOS before every text.
    private static ObjectNode postProcessor() {
        ObjectNode json = JsonNodeFactory.instance.objectNode().put("type", "TemplateProcessing");
        var single = json.putArray("single");
        single.addObject().putObject("SpecialToken").put("id", BOS_TEXT).put("type_id", 0);
        single.addObject().putObject("Sequence").put("id", "A").put("type_id", 0);
        var pair = json.putArray("pair");
        pair.addObject().putObject("SpecialToken").put("id", BOS_TEXT).put("type_id", 0);
        pair.addObject().putObject("Sequence").put("id", "A").put("type_id", 0);
        pair.addObject().putObject("Sequence").put("id", "B").put("type_id", 1);
        ObjectNode bos = json.putObject("special_tokens").putObject(BOS_TEXT).put("id", BOS_TEXT);
        bos.putArray("ids").add(BOS);
        bos.putArray("tokens").add(BOS_TEXT);
        return json;
    }
}
