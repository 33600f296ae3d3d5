// Reads documents, each as a line of base64, and writes for each the value that yaml.v2 has for it, or "refused" and why.
package main

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"math"
	"os"
	"sort"
	"strconv"
	"strings"

	"gopkg.in/yaml.v2"
)

func show(value interface{}) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case string:
		return strconv.QuoteToASCII(value)
	case float64:
		return fmt.Sprintf("f%016x", math.Float64bits(value))
	case []interface{}:
		parts := []string{}
		for _, item := range value {
			parts = append(parts, show(item))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case map[interface{}]interface{}:
		parts := []string{}
		for key, item := range value {
			parts = append(parts, show(key)+":"+show(item))
		}
		sort.Strings(parts)
		return "{" + strings.Join(parts, ",") + "}"
	case bool:
		return fmt.Sprint(value)
	default:
		return fmt.Sprintf("i%d", value)
	}
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		text, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
		if err != nil {
			panic(err)
		}
		var value interface{}
		if err := yaml.Unmarshal(text, &value); err != nil {
			fmt.Println("refused:", strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		fmt.Println(show(value))
	}
}
