import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.MetadataUpdate;
import org.apache.iceberg.MetadataUpdateParser;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.SortOrder;
import org.apache.iceberg.SortOrderParser;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableMetadataParser;
import org.apache.iceberg.view.ViewMetadata;
import org.apache.iceberg.view.ViewMetadataParser;

/**
 * What Iceberg's own library makes of metadata and updates: a question a line in, an answer a line out.
 *
 * <p>An answer has `result` and `changed`; or `error`, the exception that refused the updates; or `unreadable`, the
 * exception that refused the metadata they were to be applied to.
 */
public class Oracle {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int DEFAULT_FORMAT = 2;

  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    // Libraries may print what they like elsewhere: only answers go to the output.
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    System.setOut(System.err);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
      out.flush();
    }
  }

  private static ObjectNode answer(JsonNode question) {
    ObjectNode answer = JSON.createObjectNode();
    try {
      switch (question.get("kind").asText()) {
        case "create" -> create(question.get("request"), answer);
        case "table" -> table(question, answer);
        case "view" -> view(question, answer);
        default -> throw new IllegalArgumentException("not a kind of question: " + question.get("kind"));
      }
    } catch (Unreadable e) {
      answer.put("unreadable", told(e.getCause()));
    } catch (Exception e) {
      answer.put("error", told(e));
    }
    return answer;
  }

  private static void create(JsonNode request, ObjectNode answer) throws Exception {
    Schema schema = SchemaParser.fromJson(text(request.get("schema")));
    PartitionSpec spec = PartitionSpecParser.fromJson(request.get("partition-spec")).bind(schema);
    SortOrder order = SortOrderParser.fromJson(text(request.get("write-order"))).bind(schema);
    Map<String, String> properties = new HashMap<>();
    request.get("properties").fields().forEachRemaining(e -> properties.put(e.getKey(), e.getValue().asText()));
    String location = request.get("location").asText();
    TableMetadata made = TableMetadata.newTableMetadata(schema, spec, order, location, properties);
    answer.put("changed", true);
    answer.set("result", JSON.readTree(TableMetadataParser.toJson(made)));
  }

  private static void table(JsonNode question, ObjectNode answer) throws Exception {
    TableMetadata base = null;
    if (question.hasNonNull("base")) {
      try {
        base = TableMetadataParser.fromJson(question.get("previous").asText(), text(question.get("base")));
      } catch (RuntimeException e) {
        throw new Unreadable(e);
      }
    }
    List<MetadataUpdate> updates = updates(question);
    TableMetadata.Builder builder =
        base == null ? TableMetadata.buildFromEmpty(firstFormat(updates)) : TableMetadata.buildFrom(base);
    updates.forEach(update -> update.applyTo(builder));
    TableMetadata made = builder.build();
    answer.put("changed", base == null || !made.changes().isEmpty());
    answer.set("result", JSON.readTree(TableMetadataParser.toJson(made)));
  }

  private static void view(JsonNode question, ObjectNode answer) throws Exception {
    ViewMetadata base;
    try {
      base = ViewMetadataParser.fromJson(text(question.get("base")));
    } catch (RuntimeException e) {
      throw new Unreadable(e);
    }
    ViewMetadata.Builder builder = ViewMetadata.buildFrom(base);
    updates(question).forEach(update -> update.applyTo(builder));
    ViewMetadata made = builder.build();
    answer.put("changed", !made.changes().isEmpty());
    answer.set("result", JSON.readTree(ViewMetadataParser.toJson(made)));
  }

  private static List<MetadataUpdate> updates(JsonNode question) throws Exception {
    List<MetadataUpdate> updates = new ArrayList<>();
    for (JsonNode update : question.get("updates")) {
      updates.add(MetadataUpdateParser.fromJson(text(update)));
    }
    return updates;
  }

  /** As the reference server does: a table is created in the format its first upgrade asks for. */
  private static int firstFormat(List<MetadataUpdate> updates) {
    for (MetadataUpdate update : updates) {
      if (update instanceof MetadataUpdate.UpgradeFormatVersion) {
        return ((MetadataUpdate.UpgradeFormatVersion) update).formatVersion();
      }
    }
    return DEFAULT_FORMAT;
  }

  private static String text(JsonNode node) throws Exception {
    return JSON.writeValueAsString(node);
  }

  private static String told(Throwable e) {
    return e.getClass().getSimpleName() + ": " + e.getMessage();
  }

  private static class Unreadable extends RuntimeException {
    Unreadable(RuntimeException cause) {
      super(cause);
    }
  }
}
